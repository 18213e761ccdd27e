// SPDX-License-Identifier: GPL-2.0-only
//! A host made up, cgroups in a directory, and what rules do to them.

use super::plan::{Cgroup, Plan};
use super::table::{Border, DomainRow, Domains, Names, TenantOf};
use super::*;
use crate::shared::options::Seconds;
use crate::shared::stop::Stop;
use crate::shared::tree::tree;
use crate::shared::view::tests::view;
use nuksm_cgroupfs::{Given, give, given, set_label};
use nuksm_sysroot::Root;

/// What a host with two domains has.
pub fn domains() -> Domains {
    let tenant = |pid, leaves| TenantOf { pid, name: format!("t{pid}"), leaves };
    Domains {
        default: "shared",
        domains: vec![
            DomainRow {
                number: 0,
                name: "shared".into(),
                tenants: vec![tenant(10, Some(77))],
                merged_mappings: 2,
                saved_bytes: 3 << 10,
            },
            DomainRow {
                number: 77,
                name: "acme".into(),
                tenants: vec![tenant(11, None), tenant(12, None)],
                merged_mappings: 4,
                saved_bytes: 9 << 10,
            },
        ],
        border: Border::default(),
    }
}

/// Cgroups that were given nothing yet, on a kernel with domains.
fn host(cgroups: &[&str]) -> (tempfile::TempDir, Root) {
    let file = |path: &&str| (format!("sys/fs/cgroup/{path}/memory.ksm_domain"), "inherit\n");
    let files: Vec<(String, &str)> = cgroups.iter().map(file).collect();
    let mut all: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    all.push(("sys/fs/cgroup/cgroup.controllers", "memory\n"));
    all.push(("sys/kernel/mm/ksm/default_domain", "[shared] own\n"));
    tree(&all)
}

fn rules(text: &str) -> Rules {
    toml::from_str(text).unwrap()
}

/// Labels are for root.
fn may_label(root: &Root) -> bool {
    let may = set_label(root, "", "x").is_ok();
    may.then(|| nuksm_cgroupfs::remove_label(root, "").unwrap());
    may
}

fn apply(root: &Root, rules: &Rules) -> Applied {
    // As the kernel shows it.
    let shown = |word: &str| if word == "own" { "shared [own]\n" } else { "[shared] own\n" };
    let file = root.path("sys/kernel/mm/ksm/default_domain");
    let applied = pass(root, rules, false).unwrap();
    std::fs::write(file, shown(applied.default)).unwrap();
    applied
}

#[test]
fn rules_give_domains_and_a_second_pass_changes_nothing() {
    let (_dir, root) = host(&["a", "a/below", "b", "c", "machine.slice", "machine.slice/x.service"]);
    if !may_label(&root) {
        return;
    }
    let first = rules(
        "rules = [{ tenants = ['cgroup:/a', 'cgroup:/b', 'cgroup:/*/below'], domain = 'ab' },
                  { tenants = ['unit:x.service'], domain = 'own' }]",
    );
    let dry = pass(&root, &first, true).unwrap();
    assert_eq!((dry.changes.len(), dry.default_changed), (3, true));
    let of = |path: &str| given(&root, path).unwrap().unwrap();
    assert_eq!(of("a"), Given::Inherit, "that was a dry run");
    let applied = apply(&root, &first);
    assert_eq!((applied.changes.len(), applied.kept, applied.default_changed), (3, 0, true));
    assert!(matches!(of("a"), Given::Number(number) if number > 0));
    assert_eq!(of("a"), of("b"), "one name is one number");
    assert_eq!((of("a/below"), of("c")), (Given::Inherit, Given::Inherit));
    assert_eq!(of("machine.slice/x.service"), Given::Own);
    let again = apply(&root, &first);
    assert_eq!((again.changes.len(), again.kept, again.default_changed), (0, 3, false));
    assert!(again.text(false).ends_with("0 cgroups given another domain, 3 as rules want it\n"));

    let number = of("a");
    let others = rules("default = 'shared'\nrules = [{ tenants = ['cgroup:/b'], domain = 'ab' }]");
    let applied = apply(&root, &others);
    let paths: Vec<&str> = applied.changes.iter().map(|change| change.cgroup.as_str()).collect();
    assert_eq!(paths, ["/a", "/machine.slice/x.service"]);
    assert_eq!((of("a"), of("b")), (Given::Inherit, number), "what no rule names inherits again");
}

#[test]
fn what_was_set_by_hand_stays_and_what_somebody_wrote_is_corrected() {
    let (_dir, root) = host(&["a", "b", "c"]);
    if !may_label(&root) {
        return;
    }
    let own = Label { by: By::Hand, given: Given::Own, name: "own".into() };
    Label::give(Some(&own), &root, "a").unwrap();
    give(&root, "b", Given::Number(9)).unwrap();
    let rules = rules("rules = [{ tenants = ['cgroup:/?'], domain = 'all' }]");
    apply(&root, &rules);
    let of = |path: &str| given(&root, path).unwrap().unwrap();
    assert_eq!(of("a"), Given::Own);
    assert!(matches!(of("b"), Given::Number(number) if number != 9), "9 may be somebody's");
    assert_eq!(of("b"), of("c"));
}

#[test]
fn a_number_with_two_names_stays_with_the_first() {
    let cgroup = |path: &str, number, name: &str| Cgroup {
        path: path.into(),
        given: Some(Given::Number(number)),
        label: Some(Label { by: By::Rule, given: Given::Number(number), name: name.into() }),
        wanted: Some(Wanted::Named(name.into())),
        is_unknown: false,
    };
    let plan = Plan::new(&[cgroup("a", 5, "a"), cgroup("b", 5, "b"), cgroup("c", 6, "b")]).unwrap();
    let changed: Vec<&str> = plan.changes.iter().map(|change| change.cgroup.as_str()).collect();
    assert_eq!((changed, plan.kept), (vec!["/b"], 2), "b moves to where the others of its name are");
}

#[test]
fn who_counts_no_memory_is_told() {
    let (_dir, root) = host(&["a"]);
    std::fs::create_dir(root.path("sys/fs/cgroup/b")).unwrap();
    let rules = rules("default = 'shared'\nrules = [{ tenants = ['cgroup:/b'], domain = 'own' }]");
    let applied = apply(&root, &rules);
    assert_eq!((applied.without_memory, applied.changes.len()), (vec!["/b".to_owned()], 0));
}

#[test]
fn a_stock_kernel_has_none_and_says_what_to_do_instead() {
    let (_dir, root) = tree(&[("sys/fs/cgroup/a/cgroup.procs", "")]);
    let error = pass(&root, &Rules::default(), false).unwrap_err().to_string();
    assert!(error.contains("no merge domains") && error.contains("<nosharepages/>"), "{error}");
}

#[test]
fn domains_have_the_names_of_their_cgroups() {
    let (_dir, root) = host(&["a", "a/b", "c", "c/d", "e", "f"]);
    give(&root, "a", Given::Number(7)).unwrap();
    give(&root, "c", Given::Own).unwrap();
    give(&root, "f", Given::Number(8)).unwrap();
    let labelled = set_label(&root, "f", "rule 8 acme").is_ok();
    let mut names = Names::new(&root);
    let own = 1 << 32;
    for (cgroup, number, name) in [
        ("/a/b", 7, "7"),
        ("/a/b/c", 7, "7"),
        ("/c/d", own, "/c"),
        ("/e", 0, "shared"),
        ("/e", own, "/e"),
        ("/a", 9, "9"),
        ("/c", 0, "shared"),
        ("", 0, "shared"),
        ("/f", 8, if labelled { "acme" } else { "8" }),
    ] {
        assert_eq!(names.name(cgroup, number), name, "{cgroup} {number}");
    }
}

#[test]
fn pages_that_cross_a_border_are_counted_by_whether_somebody_leaves() {
    let mut view = view();
    assert_eq!(Border::new(&view), Border::default(), "nobody knows any domain");
    for tenant in &mut view.tenants {
        tenant.ksm.domain = Some(1);
    }
    assert_eq!(Border::new(&view), Border::default());
    view.tenants[0].ksm.domain = Some(2);
    assert_eq!(Border::new(&view), Border { leaving_pages: 0, crossing_pages: 3 });
    view.tenants[0].ksm.domain_left = Some(1);
    assert_eq!(Border::new(&view), Border { leaving_pages: 3, crossing_pages: 0 });
}

#[test]
fn a_cgroup_that_cannot_be_read_keeps_no_other_from_its_domain() {
    let (_dir, root) = host(&["a", "bad", "bad/below", "c"]);
    if !may_label(&root) {
        return;
    }
    std::fs::write(root.path("sys/fs/cgroup/bad/memory.ksm_domain"), "nonsense\n").unwrap();
    // As whoever may make cgroups makes a path that is too long to be named.
    let (name, mut at) = ("x".repeat(250), root.path("sys/fs/cgroup/c"));
    while std::fs::create_dir(at.join(&name)).is_ok() {
        at = at.join(&name);
    }
    let inside = rustix::fs::open(&at, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    rustix::fs::mkdirat(&inside, &name, rustix::fs::Mode::RWXU).unwrap();
    let rules = rules("default = 'shared'\nrules = [{ tenants = ['cgroup:/?'], domain = 'all' }]");
    let applied = apply(&root, &rules);
    assert_eq!((applied.changes.len(), applied.failed.len()), (2, 0));
    let long = format!("/{}", "y".repeat(5000));
    assert_eq!(Names::new(&root).name(&long, 7), "7");
    rustix::fs::unlinkat(&inside, &name, rustix::fs::AtFlags::REMOVEDIR).unwrap();
}

#[test]
fn what_was_set_by_hand_and_is_gone_from_the_cgroup_counts_no_more() {
    let cgroup = |has, given| Cgroup {
        path: "a".into(),
        given: Some(has),
        label: Some(Label { by: By::Hand, given, name: "acme".into() }),
        wanted: Some(Wanted::Own),
        is_unknown: false,
    };
    let changes = |has, given| Plan::new(&[cgroup(has, given)]).unwrap().changes.len();
    let (five, six) = (Given::Number(5), Given::Number(6));
    assert_eq!((changes(five, five), changes(Given::Own, Given::Own)), (0, 0));
    assert_eq!((changes(Given::Inherit, five), changes(five, six), changes(five, Given::Own)), (1, 1, 1));
}

#[test]
fn a_pod_that_nobody_knows_any_more_keeps_its_domain() {
    let uid = "11111111-0000-4000-8000-000000000001";
    let path = format!("kubepods/pod{uid}");
    let (_dir, root) = host(&["kubepods", &path]);
    if !may_label(&root) {
        return;
    }
    let logs = root.path(format!("var/log/pods/web_front_{uid}"));
    std::fs::create_dir_all(&logs).unwrap();
    let rules = rules("default = 'shared'\nrules = [{ tenants = ['namespace:*'], domain = 'each' }]");
    assert_eq!(apply(&root, &rules).changes.len(), 1);
    std::fs::remove_dir(logs).unwrap();
    assert_eq!(apply(&root, &rules).changes.len(), 0);
    assert!(matches!(given(&root, &path).unwrap(), Some(Given::Number(_))));
}

#[test]
fn one_cgroup_without_its_name_changes_no_others_number() {
    let cgroup = |path: &str, label: Option<&str>| Cgroup {
        path: path.into(),
        given: Some(Given::Number(5)),
        label: label.map(|name| Label { by: By::Rule, given: Given::Number(5), name: name.into() }),
        wanted: Some(Wanted::Named("acme".into())),
        is_unknown: false,
    };
    let plan = Plan::new(&[cgroup("a", None), cgroup("b", Some("acme"))]).unwrap();
    let changed: Vec<&str> = plan.changes.iter().map(|change| change.cgroup.as_str()).collect();
    assert_eq!((changed, plan.kept), (vec!["/a"], 1));
    let (_dir, root) = host(&["a"]);
    let long = Label { by: By::Rule, given: Given::Own, name: "n".repeat(1100) };
    assert!(Label::give(Some(&long), &root, "a").is_err());
    assert_eq!(given(&root, "a").unwrap(), Some(Given::Inherit), "before anything is given");
}

#[test]
fn after_a_pass_that_failed_all_is_looked_at_again() {
    let (_dir, root) = host(&["a", "b"]);
    if !may_label(&root) {
        return;
    }
    // As rules of before left it; what has a rule's name and no rule is found by looking
    // everywhere only.
    let old = Label { by: By::Rule, given: Given::Own, name: "own".into() };
    Label::give(Some(&old), &root, "a").unwrap();
    let rules = Rules { interval: Seconds(0), ..Rules::default() };
    let mut applying = Applying::new(&root, rules).unwrap();
    let default = root.path("sys/kernel/mm/ksm/default_domain");
    std::fs::write(&default, "nonsense\n").unwrap();
    let (stopper, stop) = Stop::by_hand();
    let (mut stopper, mut passes) = (Some(stopper), Vec::new());
    let done = |passed: anyhow::Result<Applied>| {
        passes.push(passed.map(|applied| applied.changes.len()).map_err(|error| error.to_string()));
        std::fs::write(&default, "shared [own]\n").unwrap();
        if passes.len() == 3 {
            stopper.take();
        }
    };
    applying.run(&stop, done);
    assert!(passes[0].is_err(), "{passes:?}");
    assert_eq!(passes[1..], [Ok(1), Ok(0)]);
    assert_eq!(given(&root, "a").unwrap(), Some(Given::Inherit));
}

#[test]
fn a_name_beside_another_ones_number_is_none() {
    let cgroup = |path: &str, number, given, name: &str| Cgroup {
        path: path.into(),
        given: Some(Given::Number(number)),
        label: Some(Label { by: By::Hand, given: Given::Number(given), name: name.into() }),
        wanted: None,
        is_unknown: false,
    };
    // As somebody wrote bob's number to acme's cgroup.
    let mut numbers = Numbers::of(&[cgroup("a", 6, 5, "acme"), cgroup("b", 6, 6, "bob")]);
    assert_eq!(numbers.number("bob").unwrap(), 6);
    assert!(![5, 6].contains(&numbers.number("acme").unwrap()));
}
