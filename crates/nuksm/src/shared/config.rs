// SPDX-License-Identifier: GPL-2.0-only
//! The configuration file of the daemon. docs/configuration.md and packaging/nuksm.toml
//! document each key; a test below keeps the latter complete.

use crate::shared::options::Seconds;
use crate::shared::{domains, placing, tuning};
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Deserializer, de};
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::Read;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;

/// All of it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Metrics.
    pub serve: Serve,
    /// Merge domains, if there is such a section.
    pub domains: Option<domains::Rules>,
    /// Placing, if there is such a section.
    pub place: Option<placing::Rule>,
    /// Tuning, if there is such a section.
    pub tune: Option<tuning::Rule>,
}

/// `[serve]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Serve {
    /// Where to listen.
    pub listen: Listen,
    /// Time between two collections.
    pub interval: Seconds,
    /// Tenants with metrics of their own.
    pub max_tenants: usize,
}

impl Default for Serve {
    fn default() -> Self {
        Self {
            listen: Listen { host: "127.0.0.1".into(), port: 9911 },
            interval: Seconds(10),
            max_tenants: 64,
        }
    }
}

/// An address or the name of a host, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    host: String,
    port: u16,
}

impl Listen {
    /// All addresses that it stands for now.
    pub fn addresses(&self) -> std::io::Result<Vec<SocketAddr>> {
        Ok((self.host.as_str(), self.port).to_socket_addrs()?.collect())
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let bare =
            |host: &str| host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).map(str::to_owned);
        match parts
            .map(|(host, port)| (bare(host).unwrap_or_else(|| host.to_owned()), port, bare(host).is_some()))
        {
            Some((host, port, is_v6)) if !host.is_empty() && host.contains(':') == is_v6 => {
                Ok(Self { host, port })
            }
            _ => Err(format!(
                "{text:?} is no address to listen on: write HOST:PORT, as in localhost:9911 or [::1]:9911"
            )),
        }
    }
}

impl Display for Listen {
    fn fmt(&self, formatter: &mut Formatter) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(formatter, "[{host}]:{port}")
        } else {
            write!(formatter, "{host}:{port}")
        }
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Config {
    /// Reads a file; the error says which line is wrong, and why.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = read_file(path).with_context(|| format!("cannot read {name}"))?;
        Self::parse(&text).with_context(|| format!("{name} is no configuration"))
    }

    fn parse(text: &str) -> Result<Self> {
        // Its message shows the line, and ends with a line end.
        let config: Self =
            toml::from_str(text).map_err(|error| anyhow!("{}", error.to_string().trim_end()))?;
        if let Some(Err(error)) = config.tune.as_ref().map(tuning::Rule::check) {
            // A contradiction is of the section, not of one of its keys.
            let line = text.lines().position(|line| line.trim() == "[tune]").map_or(1, |index| index + 1);
            bail!("[tune] at line {line}: {error}");
        }
        Ok(config)
    }
}

/// More than any configuration has.
const MAX_BYTES: u64 = 1 << 20;

/// The text of a regular file: whoever waits for what comes out of a FIFO, or for
/// the end of a device, does not listen to signals meanwhile.
fn read_file(path: &Path) -> Result<String> {
    let mut options = File::options();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        bail!("it is no regular file");
    }
    let mut text = String::new();
    if file.take(MAX_BYTES + 1).read_to_string(&mut text)? as u64 > MAX_BYTES {
        bail!("it has more than {} KiB", MAX_BYTES >> 10);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::options::Percent;
    use crate::shared::placing::PolicyName;

    const EXAMPLE: &str = include_str!("../../../../packaging/nuksm.toml");

    #[test]
    fn an_empty_file_serves_metrics_only() {
        assert_eq!(Config::parse("").unwrap(), Config::default());
        assert_eq!(Config::default().serve.listen.to_string(), "127.0.0.1:9911");
    }

    #[test]
    fn one_listens_on_a_host_and_a_port() {
        for text in ["localhost:9911", "127.0.0.1:1", "[::1]:9911", "[::]:0"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        for bad in ["9911", ":9911", "localhost", "localhost:http", "::1:9911", "[localhost]:1", "a:65536"] {
            assert!(bad.parse::<Listen>().unwrap_err().contains("HOST:PORT"), "{bad}");
        }
    }

    #[test]
    fn only_a_file_of_some_length_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nuksm.toml");
        let read = |path: &Path| format!("{:#}", Config::read(path).unwrap_err());
        std::fs::write(&path, "#".repeat(1 << 20)).unwrap();
        assert_eq!(Config::read(&path).unwrap(), Config::default());
        std::fs::write(&path, "#".repeat((1 << 20) + 1)).unwrap();
        assert!(read(&path).ends_with("nuksm.toml: it has more than 1024 KiB"), "{}", read(&path));
        for other in [Path::new("/dev/zero"), dir.path()] {
            assert!(read(other).ends_with(": it is no regular file"), "{}", read(other));
        }
    }

    #[test]
    fn a_section_switches_its_part_on() {
        let config =
            Config::parse("[place]\npolicy = \"priority\"\nrate = \"64MiB\"\n[tune]\nmax-cpu = 5\n").unwrap();
        let place = config.place.unwrap();
        assert_eq!(
            (place.policy, place.rate.0),
            (PolicyName::Priority, (64 << 20) / nuksm_pagemap::page_size())
        );
        assert_eq!(config.tune.unwrap().max_cpu, Percent(5.0));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, line, word) in [
            ("[serve]\nlisten = \"nowhere\"\n", "line 2", "write HOST:PORT"),
            ("[serve]\n\nport = 1\n", "line 3", "unknown field `port`"),
            ("[plaice]\n", "line 1", "unknown field `plaice`"),
            ("[place]\npolicy = \"whim\"\n", "line 2", "`fair` or `priority`"),
            ("[place]\n\n\nrate = \"fast\"\n", "line 4", "no rate"),
            ("[place]\nrate = 0\n", "line 2", "no rate"),
            ("[place]\nexclude = [\"web[\"]\n", "line 2", "names no tenant"),
            ("[place]\nonly = [\"4711\"]\n", "line 2", "a pid means another process"),
            ("[tune]\ninterval = 0\n", "line 2", "is no time"),
            ("[domains]\ndefault = \"none\"\n", "line 2", "write own or shared"),
            ("[[domains.rules]]\ntenants = [\"web\"]\n", "line 2", "names no tenants"),
            ("[[domains.rules]]\ntenants = []\ndomain = \"7\"\n", "line 3", "is no domain"),
            ("[serve]\ninterval = \"soon\"\n", "line 2", "is no time"),
            ("[tune]\nmax-cpu = 120\n", "line 2", "no percentage"),
            ("\n[tune]\nlow-free = 50\n", "line 2", "low-free is 50"),
            ("[tune\n", "line 1", "]"),
        ] {
            let message = format!("{:#}", Config::parse(text).unwrap_err());
            assert!(message.contains(line) && message.contains(word), "{text:?}: {message}");
        }
    }

    #[test]
    fn what_the_manual_shows_is_understood() {
        let manual = include_str!("../../../../docs/operating.md");
        let blocks: Vec<&str> =
            manual.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        for block in &blocks {
            assert_ne!(Config::parse(block).unwrap(), Config::default(), "{block}");
        }
        assert_eq!(blocks.len(), 2);
    }

    #[test]
    fn the_example_names_every_key_with_its_default() {
        let uncommented: String = EXAMPLE
            .lines()
            .map(|line| {
                line.strip_prefix('#')
                    .filter(|rest| rest.starts_with(|c: char| c.is_alphabetic() || c == '['))
                    .unwrap_or(line)
            })
            .map(|line| format!("{line}\n"))
            .collect();
        let config = Config::parse(&uncommented).unwrap();
        let defaults = Config {
            domains: Some(domains::Rules::default()),
            place: Some(placing::Rule::default()),
            tune: Some(tuning::Rule::default()),
            ..Config::default()
        };
        assert_eq!(config, defaults);
        assert_eq!(Config::parse(EXAMPLE).unwrap(), Config::default(), "as it is, it changes nothing");
        let keys = uncommented.lines().filter(|line| line.contains(" = ")).count();
        assert_eq!(keys, 3 + 3 + 5 + 7, "a key is missing from the example, or unknown to this test");
    }
}
