// SPDX-License-Identifier: GPL-2.0-only
//! What the operator asks for, in a file: who belongs into which domain.

use super::pods::Pods;
use crate::shared::options::Seconds;
use glob::{MatchOptions, Pattern};
use nuksm_cgroupfs::Default;
use nuksm_sysroot::printable;
use serde::{Deserialize, Deserializer, de};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// `[domains]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// Of cgroups that no rule names.
    #[serde(deserialize_with = "default_domain")]
    pub default: Default,
    /// Time between two looks at all of them; a new one is seen at once.
    pub interval: Seconds,
    /// The first one that names a cgroup decides.
    pub rules: Vec<Rule>,
}

impl std::default::Default for Rules {
    fn default() -> Self {
        Self { default: Default::Own, interval: Seconds(10), rules: Vec::new() }
    }
}

/// Some tenants, and their domain.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Any of these.
    pub tenants: Vec<Tenants>,
    /// Where they belong.
    pub domain: Target,
}

fn default_domain<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Default, D::Error> {
    match String::deserialize(deserializer)?.as_str() {
        "own" => Ok(Default::Own),
        "shared" => Ok(Default::Shared),
        other => Err(de::Error::custom(format!("{other:?} is no default: write own or shared"))),
    }
}

/// The domain that a rule gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// That of all who were given none.
    Shared,
    /// Each cgroup has its own.
    Own,
    /// Each namespace, or value of a label, has its own; each guest, unit or cgroup, too.
    Each,
    /// All of them together have this one.
    Named(String),
}

/// The domain that a cgroup is to have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// That of all who were given none.
    Shared,
    /// Nobody else's.
    Own,
    /// By its name, which no other kind of domain can have.
    Named(String),
}

/// Longer names would widen every table.
const LONGEST_NAME: usize = 64;

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_name = |text: &str| {
            // What `each` makes has a colon, so that no namespace can have a name of the operator's.
            text.chars().all(|char| char.is_ascii_alphanumeric() || "._-".contains(char))
                && text.starts_with(|char: char| char.is_ascii_alphabetic())
                && text.len() <= LONGEST_NAME
        };
        match text {
            "shared" => Ok(Self::Shared),
            "own" => Ok(Self::Own),
            "each" => Ok(Self::Each),
            "inherit" => Err("inherit is what no rule names: leave the rule out".into()),
            name if is_name(name) => Ok(Self::Named(name.to_owned())),
            _ => Err(format!(
                "{text:?} is no domain: write own, shared, each, or a name that begins with a letter and has \
                 letters, digits and . _ - only, {LONGEST_NAME} at most"
            )),
        }
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Wanted {
    /// The word by which reports have it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Shared => "shared",
            Self::Own => "own",
            Self::Named(name) => name,
        }
    }
}

/// Tenants, by what makes their cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tenants {
    /// The cgroup with this path; * means anything without a slash.
    Cgroup(Pattern),
    /// A unit of systemd that is directly in a slice.
    Unit(Pattern),
    /// A virtual machine of libvirt by its name, or of Proxmox by its number.
    Guest(Pattern),
    /// Pods of a Kubernetes namespace.
    Namespace(Pattern),
    /// Pods with a label.
    Label(String, Pattern),
}

/// What `each` makes of a cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Each {
    /// A domain of its own.
    Own,
    /// One that others of this namespace, or with this label's value, have, too.
    Named(String),
}

/// A star means no slash.
const WHOLE: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

impl Tenants {
    /// If the cgroup `path` is one of these: what `each` makes of it.
    fn matches(&self, path: &str, pods: &Pods) -> Option<Each> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let own = |is: bool| is.then_some(Each::Own);
        match self {
            Self::Cgroup(pattern) => own(pattern.matches_with(path, WHOLE)),
            Self::Unit(pattern) => own(is_in_slices(path) && is_unit(name, pattern) && pattern.matches(name)),
            Self::Guest(pattern) => {
                own(is_in_slices(path) && guest_name(path).is_some_and(|guest| pattern.matches(&guest)))
            }
            Self::Namespace(pattern) => {
                let pod = pods.get(pod_uid(path)?)?;
                let each = || Each::Named(format!("namespace:{}", printable(&pod.namespace)));
                pattern.matches(&pod.namespace).then(each)
            }
            Self::Label(key, pattern) => {
                let value = pods.get(pod_uid(path)?)?.labels.get(key)?;
                let each = || Each::Named(format!("label:{key}={}", printable(value)));
                pattern.matches(value).then(each)
            }
        }
    }

    /// May a cgroup below `path` be one of these?
    fn may_be_below(&self, path: &str) -> bool {
        match self {
            Self::Cgroup(pattern) => {
                let depth = path.split('/').filter(|part| !part.is_empty()).count();
                let mut parts = pattern.as_str().split('/');
                let prefix: Vec<&str> = parts.by_ref().take(depth).collect();
                parts.next().is_some()
                    && Pattern::new(&prefix.join("/")).is_ok_and(|prefix| prefix.matches_with(path, WHOLE))
            }
            Self::Unit(_) | Self::Guest(_) => path.split('/').all(is_slice),
            Self::Namespace(_) | Self::Label(..) => path.is_empty() || is_of_pods(path),
        }
    }
}

/// Is this cgroup directly in slices? What is in anything else, whoever owns that made.
fn is_in_slices(path: &str) -> bool {
    path.rsplit_once('/').is_none_or(|(above, _)| above.split('/').all(is_slice))
}

/// A slice holds others' units, so it has to be meant: its name is to end so in the pattern.
fn is_unit(name: &str, pattern: &Pattern) -> bool {
    let ends = |ending| name.strip_suffix(ending).is_some();
    ends(".service")
        || ends(".scope")
        || (ends(".slice") && pattern.as_str().strip_suffix(".slice").is_some())
}

fn is_slice(name: &str) -> bool {
    name.is_empty() || name.strip_suffix(".slice").is_some()
}

/// The guest whose scope this is. systemd writes - as \x2d inside of a part of a name.
/// libvirt's have a running number before the name, and of that only letters, digits,
/// - and . Proxmox's are in qemu.slice, and have a number alone.
fn guest_name(path: &str) -> Option<String> {
    let (above, scope) = path.rsplit_once('/')?;
    let scope = scope.strip_suffix(".scope")?;
    if above == "qemu.slice" {
        return scope.chars().all(|char| char.is_ascii_digit()).then(|| scope.to_owned());
    }
    let machine = scope.strip_prefix("machine-qemu\\x2d")?.replace("\\x2d", "-");
    let (number, name) = machine.split_once('-')?;
    (!name.is_empty() && number.chars().all(|char| char.is_ascii_digit())).then(|| name.to_owned())
}

/// Is this one of the cgroups that hold pods?
fn is_of_pods(path: &str) -> bool {
    path.split('/').all(|part| {
        let part = part.strip_suffix(".slice").unwrap_or(part);
        let part = part.rsplit('-').next().unwrap_or(part);
        ["kubepods", "kubelet", "besteffort", "burstable"].contains(&part)
    })
}

/// The pod whose cgroup this is: `kubepods/burstable/pod8b1c-…`, or with systemd
/// `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8b1c_….slice`.
fn pod_uid(path: &str) -> Option<String> {
    let (above, name) = path.rsplit_once('/')?;
    if !is_of_pods(above) {
        return None;
    }
    let uid = match name.strip_suffix(".slice") {
        Some(slice) => slice.rsplit_once("-pod")?.1.replace('_', "-"),
        None => name.strip_prefix("pod")?.to_owned(),
    };
    (!uid.is_empty()).then_some(uid)
}

/// Is this the cgroup of a pod of which nobody knows anything now?
pub fn is_unknown_pod(path: &str, pods: &Pods) -> bool {
    pod_uid(path).is_some_and(|uid| pods.get(uid).is_none())
}

impl FromStr for Tenants {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            format!(
                "{text:?} names no tenants: write cgroup:/machine.slice/*, unit:acme-*.service, guest:acme-*, \
                 namespace:acme, or label:tenant=acme"
            )
        };
        let (kind, words) = text.split_once(':').ok_or_else(wrong)?;
        let pattern = |words: &str| match Pattern::new(words) {
            Ok(pattern) if !words.is_empty() => Ok(pattern),
            _ => Err(wrong()),
        };
        match kind {
            "cgroup" => {
                let path = words.strip_prefix('/').ok_or_else(wrong)?;
                if path.contains("**") || path.contains("//") || path.starts_with('/') || path.ends_with('/')
                {
                    return Err(wrong());
                }
                pattern(path).map(Self::Cgroup)
            }
            "unit" => pattern(words).map(Self::Unit),
            "guest" => pattern(words).map(Self::Guest),
            "namespace" => pattern(words).map(Self::Namespace),
            "label" => {
                let (key, value) =
                    words.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(wrong)?;
                Ok(Self::Label(key.to_owned(), pattern(value)?))
            }
            _ => Err(wrong()),
        }
    }
}

impl Display for Tenants {
    fn fmt(&self, out: &mut Formatter) -> fmt::Result {
        match self {
            Self::Cgroup(pattern) => write!(out, "cgroup:/{pattern}"),
            Self::Unit(pattern) => write!(out, "unit:{pattern}"),
            Self::Guest(pattern) => write!(out, "guest:{pattern}"),
            Self::Namespace(pattern) => write!(out, "namespace:{pattern}"),
            Self::Label(key, pattern) => write!(out, "label:{key}={pattern}"),
        }
    }
}

impl<'de> Deserialize<'de> for Tenants {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Rules {
    /// The domain of the cgroup `path`, which has no slash at either end; `None` when no
    /// rule names it.
    pub fn wanted(&self, path: &str, pods: &Pods) -> Option<Wanted> {
        self.rules.iter().find_map(|rule| {
            let each = rule.tenants.iter().find_map(|tenants| tenants.matches(path, pods))?;
            Some(match (&rule.domain, each) {
                (Target::Shared, _) => Wanted::Shared,
                (Target::Own, _) | (Target::Each, Each::Own) => Wanted::Own,
                (Target::Each, Each::Named(name)) => Wanted::Named(name),
                (Target::Named(name), _) => Wanted::Named(name.clone()),
            })
        })
    }

    /// Has an earlier rule than the one that names the cgroup `path` no say below it?
    pub fn hides(&self, path: &str, pods: &Pods) -> bool {
        let names = |rule: &Rule| rule.tenants.iter().any(|tenants| tenants.matches(path, pods).is_some());
        let earlier = self.rules.iter().take_while(|rule| !names(rule));
        earlier.flat_map(|rule| &rule.tenants).any(|tenants| tenants.may_be_below(path))
    }

    /// May a rule name a cgroup below `path`?
    pub fn may_name_below(&self, path: &str) -> bool {
        self.tenants().any(|tenants| tenants.may_be_below(path))
    }

    /// Is anything said of pods, or of their labels?
    pub fn of_pods(&self) -> (bool, bool) {
        let labels = self.tenants().any(|tenants| matches!(tenants, Tenants::Label(..)));
        (labels || self.tenants().any(|tenants| matches!(tenants, Tenants::Namespace(_))), labels)
    }

    fn tenants(&self) -> impl Iterator<Item = &Tenants> {
        self.rules.iter().flat_map(|rule| &rule.tenants)
    }
}

#[cfg(test)]
mod tests {
    use super::super::pods::Pod;
    use super::*;
    use std::collections::BTreeMap;

    const UID: &str = "8b1c2d3e-0000-4000-8000-000000000001";

    fn pods() -> Pods {
        let labels = BTreeMap::from([("tenant".to_owned(), "acme".to_owned())]);
        Pods::of([(UID, Pod { namespace: "web".into(), labels })])
    }

    fn matches(tenants: &str, path: &str) -> Option<Each> {
        tenants.parse::<Tenants>().unwrap().matches(path, &pods())
    }

    fn is(tenants: &str, path: &str) -> bool {
        matches(tenants, path).is_some()
    }

    #[test]
    fn cgroups_by_their_whole_path() {
        assert!(is("cgroup:/tenants/a*", "tenants/acme"));
        for other in ["tenants", "tenants/b", "tenants/acme/below", "x/tenants/acme"] {
            assert!(!is("cgroup:/tenants/a*", other), "{other}");
        }
    }

    #[test]
    fn units_and_guests_are_in_slices_and_nowhere_else() {
        let guest = "machine.slice/machine-qemu\\x2d7\\x2dacme\\x2dweb.scope";
        assert!(is("guest:acme-web", guest) && is("guest:acme-*", guest) && !is("guest:acme", guest));
        assert!(is("unit:acme*.service", "system.slice/acme-db.service"));
        assert!(is("unit:user-1000.slice", "user.slice/user-1000.slice"));
        assert!(is("guest:100", "qemu.slice/100.scope"));
        let delegated = "user.slice/user-1000.slice/user@1000.service";
        for path in
            ["app.slice/acme.service", "machine.slice/machine-qemu\\x2d7\\x2dacme\\x2dweb.scope", "100.scope"]
        {
            let path = format!("{delegated}/{path}");
            for tenants in ["unit:acme*", "guest:*"] {
                assert!(!is(tenants, &path), "{tenants} {path}: whoever is there chose the name");
            }
        }
        for slice in ["machine.slice", "kubepods.slice", "user.slice/user-1000.slice"] {
            assert!(!is("unit:*", slice), "{slice} holds others' units");
        }
        assert!(!is("guest:*", "user.slice/user-1000.slice/100.scope"), "no guest of Proxmox");
        assert!(!is("guest:*", "machine.slice/machine-qemu\\x2dx\\x2dweb.scope"), "no number");
        assert!(!is("guest:*", "machine.slice/machine-lxc\\x2d1\\x2dweb.scope"));
    }

    #[test]
    fn pods_by_namespace_and_label_however_their_cgroups_are_written() {
        let systemd = format!(
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice",
            UID.replace('-', "_")
        );
        let nested = format!(
            "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{}.slice",
            UID.replace('-', "_")
        );
        let plain = format!("kubepods/besteffort/pod{UID}");
        for path in [&systemd, &nested, &plain] {
            assert_eq!(matches("namespace:web", path), Some(Each::Named("namespace:web".into())), "{path}");
            assert_eq!(matches("label:tenant=*", path), Some(Each::Named("label:tenant=acme".into())));
            assert!(!is("namespace:db", path) && !is("label:tenant=b*", path) && !is("label:team=*", path));
            assert!(!is("namespace:*", &format!("{path}/cri-containerd-1.scope")));
        }
        let inside = format!("{plain}/container/kubepods/pod{UID}");
        assert!(!is("namespace:*", &inside), "whoever is there chose the name");
        assert!(!is("namespace:*", &format!("system.slice/pod{UID}")));
        assert!(!is("namespace:*", "kubepods/pod0000"), "a pod that nobody knows");
    }

    #[test]
    fn the_first_rule_decides_and_each_gives_each_its_own() {
        let rules: Rules = toml::from_str(
            "rules = [
                { tenants = ['cgroup:/a', 'cgroup:/b'], domain = 'ab' },
                { tenants = ['cgroup:/*'], domain = 'each' },
                { tenants = ['namespace:*'], domain = 'each' },
                { tenants = ['unit:x.service'], domain = 'shared' },
            ]",
        )
        .unwrap();
        let wanted = |path: &str| rules.wanted(path, &pods());
        assert_eq!(wanted("a"), Some(Wanted::Named("ab".into())));
        assert_eq!(wanted("c"), Some(Wanted::Own));
        assert_eq!(wanted(&format!("kubepods/pod{UID}")), Some(Wanted::Named("namespace:web".into())));
        assert_eq!(wanted("system.slice/x.service"), Some(Wanted::Shared));
        assert_eq!(wanted("system.slice/y.service"), None);
        assert_eq!((rules.default, rules.of_pods()), (Default::Own, (true, false)));
    }

    #[test]
    fn a_rule_for_what_is_above_hides_an_earlier_one() {
        let rules: Rules = toml::from_str(
            "rules = [{ tenants = ['namespace:*'], domain = 'each' }, { tenants = ['cgroup:/*'], domain = 'own' }]",
        )
        .unwrap();
        assert!(rules.hides("kubepods.slice", &pods()), "pods would all be in one domain");
        assert!(!rules.hides("machine.slice", &pods()), "there are none");
        let turned = Rules { rules: rules.rules.into_iter().rev().collect(), ..Rules::default() };
        assert!(!turned.hides("kubepods.slice", &pods()), "the first rule decides");
    }

    #[test]
    fn only_where_a_rule_may_name_somebody_is_looked() {
        let rules = |tenants: &str| Rules {
            rules: vec![Rule { tenants: vec![tenants.parse().unwrap()], domain: Target::Own }],
            ..Rules::default()
        };
        for (tenants, open, closed) in [
            ("cgroup:/a/b*/c", vec!["", "a", "a/bx"], vec!["b", "a/c", "a/bx/c"]),
            ("unit:x", vec!["", "a.slice", "a.slice/a-b.slice"], vec!["a", "a.slice/b.service"]),
            (
                "namespace:x",
                vec!["", "kubepods.slice"],
                vec!["a.slice", "kubepods.slice/kubepods-pod1.slice"],
            ),
        ] {
            for path in open {
                assert!(rules(tenants).may_name_below(path), "{tenants} {path}");
            }
            for path in closed {
                assert!(!rules(tenants).may_name_below(path), "{tenants} {path}");
            }
        }
    }

    #[test]
    fn mistakes_say_what_to_write() {
        for bad in [
            "acme",
            "cgroup:",
            "cgroup:a",
            "cgroup:/a/",
            "cgroup://a",
            "cgroup:/**",
            "pod:x",
            "unit:[",
            "label:x",
            "label:=x",
        ] {
            assert!(
                bad.parse::<Tenants>().unwrap_err().contains("names no tenants: write cgroup:/"),
                "{bad}"
            );
        }
        for good in ["cgroup:/a/*", "unit:a?", "guest:a", "namespace:a", "label:k/l=v*"] {
            assert_eq!(good.parse::<Tenants>().unwrap().to_string(), good);
        }
        for bad in ["", "namespace:web", "7", "a b", "inherit", "-a", &"a".repeat(65)] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
        assert!(
            toml::from_str::<Rules>("default = \"none\"").unwrap_err().to_string().contains("own or shared")
        );
    }
}
