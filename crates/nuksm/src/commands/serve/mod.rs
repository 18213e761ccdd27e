// SPDX-License-Identifier: GPL-2.0-only
//! `nuksm serve`: metrics for Prometheus; `place` and `tune` in the same daemon
//! where a configuration file asks for them.

mod collector;
mod health;
mod http;
mod look;
mod metrics;
mod workers;

use crate::shared::config::{Config, Listen};
use crate::shared::options::Seconds;
use crate::shared::{stop, view};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use collector::Collector;
use health::Health;
use http::{Server, Source};
use log::{info, warn};
use nuksm_sysroot::Root;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use workers::Workers;

/// Serve metrics for Prometheus; place and tune in the same daemon, if asked to.
///
/// /metrics has KSM's savings and counters, merged pages per node, and near
/// and far ones per tenant; /healthz says whether all of it works. Figures
/// are collected once per interval (10 s), however often they are asked for.
/// Where pages are is looked at less often: not while no counter says that
/// anything changed, and never so often that looking takes more than 0.5 % of
/// a CPU on the average; `nuksm_look_age_seconds` says how old it is.
///
/// A configuration file can switch `place` and `tune` on; SIGHUP reads it
/// again. Without root there are counters only.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  nuksm serve\n  nuksm serve --config /etc/nuksm.toml\n  curl -s http://127.0.0.1:9911/metrics"
)]
pub struct ServeArgs {
    /// Read settings from FILE (TOML), which can also switch placing and tuning
    /// on; SIGHUP reads it again. docs/configuration.md explains each key.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address, or name of this host, and port to listen on [default: 127.0.0.1:9911].
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<Listen>,
    /// Time between two collections [default: 10s].
    #[arg(long, value_name = "TIME")]
    pub interval: Option<Seconds>,
    /// Tenants with metrics of their own: the biggest; the others are one,
    /// named `other` [default: 64].
    #[arg(long, value_name = "NUMBER")]
    pub max_tenants: Option<usize>,
}

/// Serves until SIGINT or SIGTERM.
pub fn run(root: &Root, args: &ServeArgs) -> Result<ExitCode> {
    view::require_ksm(root)?;
    let mut config = load(args)?;
    // Before any thread: signals that come now are dealt with later.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot watch for signals")?;
    let listeners = http::bind(&config.serve.listen)?;
    let addresses = listeners.iter().map(TcpListener::local_addr).collect::<Result<Vec<SocketAddr>, _>>()?;
    for address in addresses.iter().filter(|address| !address.ip().is_loopback()) {
        warn!("{address} can be reached from other machines: whoever does learns the tenants' names");
    }
    let health = Arc::new(Health::default());
    let shared = Arc::new(look::Shared::default());
    let mut workers = Workers::new(root, Arc::clone(&shared), Arc::clone(&health));
    workers.apply(&config)?;
    let collector = Collector::start(root, &config, Arc::clone(&shared), Arc::clone(&health));
    let source = Source { page: collector.page(), health };
    let server = Server::start(listeners, source, || {
        // Ends the daemon as if it had been asked to; why comes then.
        let _ = signal_hook::low_level::raise(SIGTERM);
    })?;
    for address in addresses {
        info!("listening on http://{address}/metrics");
    }
    // For systemd, if that started us: only now has starting succeeded.
    sd_notify::notify(&[NotifyState::Ready]).context("cannot tell systemd that all is ready")?;

    for signal in signals.forever() {
        if signal != SIGHUP {
            break;
        }
        let read = load(args).map_err(|error| anyhow!("{error:#}; the configuration before it stays"));
        match read.and_then(|new| reload(&config, &new, &mut workers).map(|()| new)) {
            Ok(new) => {
                collector.configure(&new);
                config = new;
                info!("the configuration was read again");
            }
            Err(error) => warn!("{error:#}"),
        }
    }
    stop::end_on_the_next(signals);
    let answered = server.stop();
    collector.stop();
    workers.stop().and(answered).map(|()| ExitCode::SUCCESS)
}

/// The configuration file, if there is one, outweighed by the command line.
fn load(args: &ServeArgs) -> Result<Config> {
    let mut config = args.config.as_ref().map_or_else(|| Ok(Config::default()), |path| Config::read(path))?;
    if let Some(listen) = &args.listen {
        config.serve.listen = listen.clone();
    }
    config.serve.interval = args.interval.unwrap_or(config.serve.interval);
    config.serve.max_tenants = args.max_tenants.unwrap_or(config.serve.max_tenants);
    Ok(config)
}

/// Makes the new configuration hold. Where that fails, or it holds what cannot change
/// while running, the old one does again; the error says so, or why not.
fn reload(old: &Config, new: &Config, workers: &mut Workers) -> Result<()> {
    let applied = if new.serve.listen == old.serve.listen {
        workers.apply(new)
    } else {
        Err(anyhow!("listen can only change with a restart (it is {})", old.serve.listen))
    };
    applied.map_err(|error| match workers.apply(old) {
        Ok(()) => anyhow!("{error:#}; the configuration before it stays"),
        Err(again) => {
            anyhow!("{error:#}; nor can the configuration before it be taken up again: {again:#}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::options::Seconds;
    use crate::shared::tree::tree;
    use crate::shared::tuning;
    use std::fs;
    use std::process::Command;

    const KSM: [(&str, &str); 3] = [
        ("sys/kernel/mm/ksm/pages_to_scan", "100\n"),
        ("sys/kernel/mm/ksm/sleep_millisecs", "20\n"),
        ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 9 kB\n"),
    ];

    #[test]
    fn a_reload_that_fails_twice_is_trouble_and_says_why_both_times() {
        let (dir, root) = tree(&KSM);
        let health = Arc::<Health>::default();
        let mut workers = Workers::new(&root, Arc::default(), Arc::clone(&health));
        let config = |seconds, advisor| Config {
            tune: Some(tuning::Rule { interval: Seconds(seconds), advisor, ..tuning::Rule::default() }),
            ..Config::default()
        };
        workers.apply(&config(7, false)).unwrap();
        let said = format!("{:#}", reload(&config(7, false), &config(8, true), &mut workers).unwrap_err());
        assert!(
            said.contains("no advisor") && said.ends_with("; the configuration before it stays"),
            "{said}"
        );
        assert_eq!(health.trouble(), None);
        let lock = dir.path().join("run/nuksm/tune.json");
        fs::rename(&lock, dir.path().join("moved")).unwrap();
        fs::create_dir(&lock).unwrap();
        let said = format!("{:#}", reload(&config(7, false), &config(8, true), &mut workers).unwrap_err());
        assert!(
            said.contains("no advisor") && said.contains("nor can the configuration before it"),
            "{said}"
        );
        assert!(said.contains("tune.json") && !said.contains("stays"), "{said}");
        let trouble = health.trouble().unwrap();
        assert!(trouble.starts_with("[tune] does not run: ") && trouble.contains("tune.json"), "{trouble}");
    }

    const TREE: &str = "NUKSM_TEST_TREE";

    #[test]
    #[ignore = "a process that the next test starts"]
    fn a_daemon_that_cannot_tell_systemd() {
        let config = Some(PathBuf::from(std::env::var_os(TREE).unwrap()));
        let root = Root::at(config.as_ref().unwrap().parent().unwrap());
        let listen = Some("127.0.0.1:0".parse().unwrap());
        let said = run(&root, &ServeArgs { config, listen, interval: None, max_tenants: None }).unwrap_err();
        assert!(said.to_string().contains("cannot tell systemd"), "{said:#}");
    }

    #[test]
    fn a_daemon_that_fails_gives_ksms_settings_back() {
        let (dir, root) = tree(&[&KSM[..], &[("config.toml", "[tune]\n")]].concat());
        let daemon = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "commands::serve::tests::a_daemon_that_cannot_tell_systemd", "--ignored"])
            .env(TREE, dir.path().join("config.toml"))
            .env("NOTIFY_SOCKET", "/nonexistent")
            .output()
            .unwrap();
        assert!(daemon.status.success(), "{daemon:?}");
        assert_eq!(root.text("run/nuksm/tune.json").unwrap().as_deref(), Some(""));
    }

    #[test]
    fn the_command_line_outweighs_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "[serve]\nlisten = \"127.0.0.1:1\"\nmax-tenants = 2\n").unwrap();
        let load = |listen: Option<&str>, max_tenants| {
            let listen = listen.map(|text| text.parse().unwrap());
            let args = ServeArgs { config: Some(file.path().into()), listen, interval: None, max_tenants };
            let serve = load(&args).unwrap().serve;
            (serve.listen.to_string(), serve.max_tenants)
        };
        assert_eq!(load(None, None), ("127.0.0.1:1".into(), 2));
        assert_eq!(load(Some("[::1]:3"), Some(4)), ("[::1]:3".into(), 4));
    }
}
