// SPDX-License-Identifier: GPL-2.0-only
//! Values that the command line and the configuration file have in common.

use serde::{Deserialize, Deserializer, de};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::time::Duration;

/// Whole seconds, at least one: less would only keep a CPU busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds(pub u64);

impl Seconds {
    /// As the standard library has it.
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.parse::<u64>() {
            Ok(seconds) if seconds > 0 => Ok(Self(seconds)),
            _ => Err(format!("{text:?} is no interval: write whole seconds, 1 or more")),
        }
    }
}

impl Display for Seconds {
    fn fmt(&self, formatter: &mut Formatter) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = i64::deserialize(deserializer)?;
        seconds.to_string().parse().map_err(de::Error::custom)
    }
}

/// An interval.
pub fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<Seconds>().map(Seconds::duration)
}

/// Pages per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hint = || {
            format!("{text:?} is no rate: write pages per second (5000) or MiB per second (64MiB), above 0")
        };
        let (number, bytes) = match text.strip_suffix("MiB") {
            Some(number) => (number, Some(1 << 20)),
            None => (text, None),
        };
        let number: u64 = number.parse().map_err(|_| hint())?;
        let pages = match bytes {
            Some(unit) => number.checked_mul(unit).ok_or_else(hint)? / pagemap::page_size(),
            None => number,
        };
        if pages == 0 { Err(hint()) } else { Ok(Self(pages)) }
    }
}

/// 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percent(pub f64);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.trim_end_matches('%').parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(Self(percent)),
            _ => Err(format!("{text:?} is no percentage: write a number from 0 to 100")),
        }
    }
}

impl Display for Percent {
    fn fmt(&self, formatter: &mut Formatter) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let percent = f64::deserialize(deserializer)?;
        percent.to_string().parse().map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected pages per second (5000) or MiB per second (\"64MiB\")")]
        enum Written {
            Pages(i64),
            Text(String),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Pages(pages) => pages.to_string(),
            Written::Text(text) => text,
        };
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_say_what_they_should_be() {
        assert_eq!("3".parse(), Ok(Seconds(3)));
        assert_eq!(("20".parse(), "2.5%".parse()), (Ok(Percent(20.0)), Ok(Percent(2.5))));
        for bad in ["0", "-1", "1.5", "soon"] {
            assert!(bad.parse::<Seconds>().unwrap_err().contains("whole seconds"), "{bad}");
        }
        for bad in ["-1", "101", "NaN", "all"] {
            assert!(bad.parse::<Percent>().unwrap_err().contains("0 to 100"), "{bad}");
        }
    }

    #[test]
    fn rates_in_pages_and_in_memory() {
        assert_eq!("5000".parse(), Ok(Rate(5000)));
        assert_eq!("64MiB".parse(), Ok(Rate((64 << 20) / pagemap::page_size())));
        for bad in ["0", "0MiB", "-1", "fast", "64GiB", "MiB", "99999999999999999999", "99999999999999999MiB"]
        {
            let message = bad.parse::<Rate>().unwrap_err();
            assert!(message.contains("pages per second (5000)"), "{bad}: {message}");
        }
    }
}
