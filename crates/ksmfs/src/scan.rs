// SPDX-License-Identifier: GPL-2.0-only
//! How fast ksmd scans: by fixed numbers, or by the kernel's advisor.

use crate::control::DIR;
use crate::{Choice, Control};
use nuksm_sysroot::{Result, Root};
use serde::{Deserialize, Serialize};

/// All settings of ksmd's speed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanSettings {
    /// Pages ksmd looks at before it sleeps. The advisor changes it.
    pub pages_to_scan: u64,
    /// How long ksmd then sleeps.
    pub sleep_millisecs: u64,
    /// `None` before Linux 6.8.
    pub advisor: Option<Advisor>,
}

/// The kernel's advisor, which aims at a time for a full scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advisor {
    /// Does it decide `pages_to_scan`?
    pub on: bool,
    /// Percent of a CPU that ksmd may use.
    pub max_cpu: u64,
    /// Seconds that a full scan should take.
    pub target_scan_time: u64,
}

impl ScanSettings {
    /// Reads them; `None` when this kernel has no KSM.
    pub fn read(root: &Root) -> Result<Option<Self>> {
        let number = |control: Control| root.value::<u64>(control.path(), "a number");
        let mode = root.value::<Choice>(format!("{DIR}/advisor_mode"), "words, one of them in [brackets]")?;
        let advisor = match (mode, number(Control::AdvisorMaxCpu)?, number(Control::AdvisorTargetScanTime)?) {
            (Some(mode), Some(max_cpu), Some(target_scan_time)) => {
                Some(Advisor { on: mode.current == SCAN_TIME, max_cpu, target_scan_time })
            }
            _ => None,
        };
        let rate = number(Control::PagesToScan)?.zip(number(Control::SleepMillisecs)?);
        Ok(rate.map(|(pages_to_scan, sleep_millisecs)| Self { pages_to_scan, sleep_millisecs, advisor }))
    }

    /// Makes the kernel's settings these. What it has already is not written:
    /// the advisor starts anew whenever it is switched.
    pub fn write(&self, root: &Root) -> Result<()> {
        let now = Self::read(root)?;
        let advisor_now = now.as_ref().and_then(|now| now.advisor.clone());
        if let Some(advisor) = &self.advisor {
            if advisor_now.as_ref().is_none_or(|now| now.on != advisor.on) {
                Control::AdvisorMode.write(root, if advisor.on { SCAN_TIME } else { "none" })?;
            }
            if advisor_now.as_ref().is_none_or(|now| now.max_cpu != advisor.max_cpu) {
                Control::AdvisorMaxCpu.write(root, advisor.max_cpu)?;
            }
            if advisor_now.as_ref().is_none_or(|now| now.target_scan_time != advisor.target_scan_time) {
                Control::AdvisorTargetScanTime.write(root, advisor.target_scan_time)?;
            }
        }
        // With the advisor on, the kernel refuses this one; and switching the
        // advisor changes it.
        if !self.advisor.as_ref().is_some_and(|advisor| advisor.on) {
            Control::PagesToScan.write(root, self.pages_to_scan)?;
        }
        Control::SleepMillisecs.write(root, self.sleep_millisecs)
    }
}

const SCAN_TIME: &str = "scan-time";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::root;

    const OLD: [(&str, &str); 2] = [("pages_to_scan", "100\n"), ("sleep_millisecs", "20\n")];
    const NEW: [(&str, &str); 5] = [
        ("pages_to_scan", "100\n"),
        ("sleep_millisecs", "20\n"),
        ("advisor_mode", "none [scan-time]\n"),
        ("advisor_max_cpu", "70\n"),
        ("advisor_target_scan_time", "200\n"),
    ];

    #[test]
    fn a_kernel_may_have_no_ksm_or_no_advisor() {
        let (_dir, none) = root(&[]);
        assert_eq!(ScanSettings::read(&none).unwrap(), None);
        let (_dir, old) = root(&OLD);
        let settings = ScanSettings::read(&old).unwrap().unwrap();
        assert_eq!(settings, ScanSettings { pages_to_scan: 100, sleep_millisecs: 20, advisor: None });
        ScanSettings { pages_to_scan: 7, ..settings }.write(&old).unwrap();
        assert_eq!(ScanSettings::read(&old).unwrap().unwrap().pages_to_scan, 7);
    }

    #[test]
    fn with_the_advisor_on_pages_to_scan_is_the_kernels() {
        let (_dir, root) = root(&NEW);
        let settings = ScanSettings::read(&root).unwrap().unwrap();
        assert_eq!(settings.advisor, Some(Advisor { on: true, max_cpu: 70, target_scan_time: 200 }));
        let file = |name: &str| root.text(format!("{DIR}/{name}")).unwrap().unwrap();
        let advisor = Some(Advisor { on: true, max_cpu: 20, target_scan_time: 30 });
        ScanSettings { pages_to_scan: 7, advisor, ..settings.clone() }.write(&root).unwrap();
        assert_eq!((file("pages_to_scan"), file("advisor_max_cpu")), ("100\n".into(), "20\n".into()));
        assert_eq!(file("advisor_mode"), NEW[2].1, "it was not switched");
        let advisor = Some(Advisor { on: false, max_cpu: 20, target_scan_time: 30 });
        ScanSettings { pages_to_scan: 7, advisor, ..settings }.write(&root).unwrap();
        assert_eq!((file("pages_to_scan"), file("advisor_mode")), ("7\n".into(), "none\n".into()));
    }
}
