// SPDX-License-Identifier: GPL-2.0-only
//! Which pods of Kubernetes there are on this node.

use anyhow::{Context, Result, bail};
use nuksm_sysroot::Root;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

/// Where the kubelet makes a directory for each: its namespace, its name and its UID, with _ between them.
pub const DIRECTORY: &str = "var/log/pods";

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its labels, if they were asked for.
    pub labels: BTreeMap<String, String>,
}

/// Pods by UID.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pods(BTreeMap<String, Pod>);

/// As `crictl pods --output json` has them.
#[derive(Deserialize)]
struct Sandboxes {
    items: Vec<Sandbox>,
}

#[derive(Deserialize)]
struct Sandbox {
    metadata: Metadata,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Metadata {
    uid: String,
    namespace: String,
}

impl Pods {
    /// Those whose directory is there; with `labels` those that the container runtime
    /// knows, too.
    pub fn read(root: &Root, labels: bool) -> Result<Self> {
        let mut pods = Self::default();
        let path = root.path(DIRECTORY);
        match std::fs::read_dir(&path) {
            Ok(entries) => {
                let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
                let found = names.filter_map(|name| {
                    // Neither a namespace nor a name has a _.
                    let mut parts = name.splitn(3, '_');
                    let (namespace, _, uid) = (parts.next()?, parts.next()?, parts.next()?);
                    Some((uid.to_owned(), namespace.to_owned()))
                });
                let mut namespaces = BTreeMap::<String, BTreeSet<String>>::new();
                for (uid, namespace) in found {
                    namespaces.entry(uid).or_default().insert(namespace);
                }
                // Somebody else made a directory, too: nobody knows whose it is.
                namespaces.retain(|_, namespaces| namespaces.len() == 1);
                pods.0.extend(namespaces.into_iter().map(|(uid, namespaces)| {
                    let namespace = namespaces.into_iter().next().unwrap_or_default();
                    (uid, Pod { namespace, ..Pod::default() })
                }));
            }
            Err(error) if nuksm_sysroot::is_absent(&error) => {}
            Err(error) => return Err(error).with_context(|| format!("cannot list {}", path.display())),
        }
        if labels {
            pods.0.extend(Self::parse(&ask_runtime()?).context("crictl's answer is not understood")?.0);
        }
        Ok(pods)
    }

    fn parse(json: &[u8]) -> Result<Self> {
        let Sandboxes { items } = serde_json::from_slice(json)?;
        let pod = |sandbox: Sandbox| {
            let Sandbox { metadata: Metadata { uid, namespace }, labels } = sandbox;
            (uid, Pod { namespace, labels })
        };
        Ok(Self(items.into_iter().map(pod).collect()))
    }

    /// One of them.
    #[allow(clippy::needless_pass_by_value)]
    pub fn get(&self, uid: String) -> Option<&Pod> {
        self.0.get(&uid)
    }

    #[cfg(test)]
    pub fn of<const N: usize>(pods: [(&str, Pod); N]) -> Self {
        Self(pods.map(|(uid, pod)| (uid.to_owned(), pod)).into())
    }
}

/// Labels are nowhere in the file system, in no form that all runtimes have.
fn ask_runtime() -> Result<Vec<u8>> {
    // Its own limit is for its questions only.
    let mut crictl = Command::new("timeout");
    crictl.args(["15", "crictl", "--timeout", "10s", "pods", "--output", "json"]).stdin(Stdio::null());
    let output = crictl.output().context("labels of pods are asked of the container runtime by crictl")?;
    if !output.status.success() {
        bail!("crictl, asked for labels of pods: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tree::tree;

    #[test]
    fn namespaces_by_the_directories_of_logs() {
        let (_dir, root) = tree(&[
            ("var/log/pods/web_front-7f_1-2/app/0.log", ""),
            ("var/log/pods/kube-system_etcd_abc/etcd/0.log", ""),
            ("var/log/pods/lost+found/x", ""),
            ("var/log/pods/web_x_7/app/0.log", ""),
            ("var/log/pods/evil_x_7/app/0.log", ""),
        ]);
        let pods = Pods::read(&root, false).unwrap();
        let namespace = |uid: &str| pods.get(uid.into()).map(|pod| pod.namespace.as_str());
        assert_eq!(
            (namespace("1-2"), namespace("abc"), namespace("3")),
            (Some("web"), Some("kube-system"), None)
        );
        assert_eq!(namespace("7"), None, "of two namespaces");
        let (_dir, root) = tree(&[]);
        assert_eq!(Pods::read(&root, false).unwrap(), Pods::default(), "no Kubernetes");
    }

    #[test]
    fn labels_as_the_runtime_tells_them() {
        let pods = Pods::parse(
            br#"{"items":[{"id":"f00","metadata":{"name":"a","uid":"1-2","namespace":"web","attempt":0},
                "state":"SANDBOX_READY","labels":{"tenant":"acme"},"annotations":{}},
                {"metadata":{"uid":"3","namespace":"db"}}]}"#,
        )
        .unwrap();
        assert_eq!(pods.get("1-2".into()).unwrap().labels["tenant"], "acme");
        assert_eq!(pods.get("3".into()).unwrap().namespace, "db");
        assert!(Pods::parse(b"no json").is_err());
    }
}
