// SPDX-License-Identifier: GPL-2.0-only
//! What the kernel's own placing leaves to ours.

use super::PolicyName;
use nuksm_ksmfs::Engine;

/// Why nothing is, if so: a kernel that has merged pages follow who uses them knows more
/// than we do, who would move them away again.
pub fn leaves_nothing(engine: Option<&Engine>, policy: PolicyName) -> Option<String> {
    let engine = engine?;
    let (kernels, ours) = (engine.placement.as_ref()?.current.as_str(), policy.as_str());
    if kernels == "first" || engine.look_cpu_permille.unwrap_or(0) == 0 {
        return None;
    }
    let mut why = format!(
        "this kernel places merged pages itself, as {kernels}, and has them follow who uses them; \
         `nuksm engine set placement=first` leaves them to nuksm"
    );
    if kernels != ours {
        why += &format!(", `nuksm engine set placement={ours}` has the kernel go by that policy");
    }
    Some(why)
}

/// What one should know when the kernel places pages, too, but only as it merges them.
pub fn note(engine: Option<&Engine>, policy: PolicyName) -> Option<String> {
    let kernels = engine?.placement.as_ref()?.current.as_str();
    let ours = policy.as_str();
    if kernels == "first" || leaves_nothing(engine, policy).is_some() {
        return None;
    }
    Some(if kernels == ours {
        format!(
            "this kernel places new merges by itself ({kernels}): only what was merged before is corrected"
        )
    } else {
        format!(
            "this kernel places new merges by itself, but as {kernels}, not as {ours}: the two work against \
             each other; `nuksm engine set placement={ours}` ends that, or `nuksm place --policy {kernels}`"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(placement: Option<&str>, look_cpu_permille: u32) -> Engine {
        let placement = placement.map(|text| text.parse().unwrap());
        Engine { placement, look_cpu_permille: Some(look_cpu_permille), ..Engine::default() }
    }

    #[test]
    fn a_kernel_that_places_pages_is_worth_a_word_and_a_contradiction_more() {
        let note = |placement, policy| note(Some(&engine(placement, 0)), policy);
        assert_eq!(super::note(None, PolicyName::Fair), None);
        assert_eq!(note(None, PolicyName::Fair), None);
        assert_eq!(note(Some("[first] fair priority"), PolicyName::Priority), None);
        let same = note(Some("first [fair] priority"), PolicyName::Fair).unwrap();
        assert!(same.contains("(fair): only what was merged before"), "{same}");
        let other = note(Some("first [fair] priority"), PolicyName::Priority).unwrap();
        assert!(other.contains("as fair, not as priority: the two work against each other"), "{other}");
        assert!(other.contains("`nuksm engine set placement=priority`"), "{other}");
    }

    #[test]
    fn what_follows_who_uses_it_is_left_to_the_kernel() {
        let fair = Some("first [fair] priority");
        let why = |placement, permille, policy| leaves_nothing(Some(&engine(placement, permille)), policy);
        assert_eq!(leaves_nothing(None, PolicyName::Fair), None);
        assert_eq!(why(None, 5, PolicyName::Fair), None);
        assert_eq!(why(Some("[first] fair priority"), 5, PolicyName::Fair), None);
        assert_eq!(why(fair, 0, PolicyName::Fair), None, "it places as it merges, and that is all");
        let same = why(fair, 5, PolicyName::Fair).unwrap();
        assert!(same.ends_with("`nuksm engine set placement=first` leaves them to nuksm"), "{same}");
        let other = why(fair, 5, PolicyName::Priority).unwrap();
        assert!(other.contains("`nuksm engine set placement=priority`"), "{other}");
        assert_eq!(note(Some(&engine(fair, 5)), PolicyName::Priority), None, "it is said in the report");
    }
}
