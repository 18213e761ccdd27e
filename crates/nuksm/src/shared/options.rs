// SPDX-License-Identifier: GPL-2.0-only
//! Values that the command line and the configuration file have in common.

use serde::{Deserialize, Deserializer, de};
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;
use std::time::Duration;

/// A time in whole seconds, at least one: less would only keep a CPU busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds(pub u64);

impl Seconds {
    /// What any clock can be ahead of now.
    const MOST: u64 = 366 * 24 * 60 * 60;

    /// As the standard library has it.
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let time = match text.parse::<u64>() {
            Ok(seconds) => Some(Duration::from_secs(seconds)),
            Err(_) => humantime::parse_duration(text).ok(),
        };
        match time {
            Some(time) if time.subsec_nanos() == 0 && (1..=Self::MOST).contains(&time.as_secs()) => {
                Ok(Self(time.as_secs()))
            }
            _ => Err(format!(
                "{text:?} is no time: write whole seconds (10, 10s), minutes (5m), hours (2h) or days, a year at most"
            )),
        }
    }
}

impl Display for Seconds {
    fn fmt(&self, formatter: &mut Formatter) -> fmt::Result {
        write!(formatter, "{}s", self.0)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Written::deserialize(deserializer)?.text().parse().map_err(de::Error::custom)
    }
}

/// A figure with its unit in a file: a number, or text.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number, or text such as \"10s\" or \"64M\"")]
enum Written {
    Number(i64),
    Text(String),
}

impl Written {
    fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }
}

/// The same as the standard library has it.
pub fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<Seconds>().map(Seconds::duration)
}

/// Pages per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pages = match text.parse::<u64>() {
            Ok(pages) => Some(pages),
            Err(_) => bytes(text).map(|bytes| bytes / nuksm_pagemap::page_size()),
        };
        pages.filter(|&pages| pages > 0).map(Self).ok_or_else(|| {
            format!("{text:?} is no rate: write pages per second (5000) or memory per second (64M), above 0")
        })
    }
}

/// Memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let size = bytes(text).filter(|&bytes| bytes > 0).map(Self);
        size.ok_or_else(|| {
            format!("{text:?} is no size: write a number with K, M, G or T (512M, 4G), above 0")
        })
    }
}

/// A number with K, M, G or T, which are powers of 1024 with and without "iB".
fn bytes(text: &str) -> Option<u64> {
    let text = text.strip_suffix("iB").unwrap_or(text);
    let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let (number, shift) = units.iter().find_map(|&(unit, shift)| Some((text.strip_suffix(unit)?, shift)))?;
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
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
        Written::deserialize(deserializer)?.text().parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_say_what_they_should_be() {
        let seconds = |text: &str| text.parse::<Seconds>().map(|time| time.0);
        assert_eq!((seconds("3"), seconds("10s"), seconds("5m")), (Ok(3), Ok(10), Ok(300)));
        assert_eq!((seconds("1h 30m"), seconds("366d")), (Ok(5_400), Ok(Seconds::MOST)));
        assert_eq!(("20".parse(), "2.5%".parse()), (Ok(Percent(20.0)), Ok(Percent(2.5))));
        for bad in ["0", "-1", "1.5", "soon", "500ms", "2w 1ms", "2y", "18446744073709551615"] {
            assert!(bad.parse::<Seconds>().unwrap_err().contains("whole seconds (10, 10s)"), "{bad}");
        }
        for bad in ["-1", "101", "NaN", "all"] {
            assert!(bad.parse::<Percent>().unwrap_err().contains("0 to 100"), "{bad}");
        }
    }

    #[test]
    fn rates_in_pages_and_in_memory() {
        assert_eq!("5000".parse(), Ok(Rate(5000)));
        let pages = |text: &str| text.parse::<Rate>().map(|rate| rate.0 * nuksm_pagemap::page_size());
        assert_eq!((pages("64MiB"), pages("64M"), pages("1G")), (Ok(64 << 20), Ok(64 << 20), Ok(1 << 30)));
        for bad in
            ["0", "0MiB", "-1", "fast", "64MB", "MiB", "1K", "99999999999999999999", "99999999999999999MiB"]
        {
            let message = bad.parse::<Rate>().unwrap_err();
            assert!(message.contains("pages per second (5000)"), "{bad}: {message}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        let size = |text: &str| text.parse::<Size>().map(|size| size.0);
        assert_eq!((size("512MiB"), size("4G"), size("1KiB")), (Ok(512 << 20), Ok(4 << 30), Ok(1 << 10)));
        for bad in ["0G", "GiB", "1", "-1M", "1TB", "1.5G", "99999999999999999G"] {
            assert!(bad.parse::<Size>().unwrap_err().contains("is no size"), "{bad}");
        }
    }
}
