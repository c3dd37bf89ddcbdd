//! The isolation of children on this machine.

use std::path::PathBuf;

use crate::config::Config;
use crate::process::{AgentUsers, ControlGroups, HostIsolation, Sandbox};
use crate::types::{Isolation, OWN_PROGRAM};

/// How a gateway isolates its children. The control groups come first: the gateway moves itself, and the probe starts
/// processes.
pub(super) fn host_isolation(config: &Config, users: Option<AgentUsers>) -> HostIsolation {
    let (folders, policy) = (hidden(config), config.isolation);
    let (temporary, record) = (config.data.temporary(), config.data.control_groups());
    HostIsolation::with_preparation(Sandbox::unavailable(policy), move || {
        let groups = ControlGroups::open(&record);
        let sandbox =
            Sandbox::probe(OWN_PROGRAM.as_ref(), folders, temporary, policy).with_users(users);
        if let Some(missing) = sandbox.shortcoming() {
            let mechanism = sandbox.applied(Isolation::Private).mechanism;
            tracing::warn!(%mechanism, missing, "agents cannot be isolated completely");
        }
        (sandbox, groups)
    })
}

/// The isolation of a child of a command, which may run beside a gateway: without control groups, and with another parent
/// of temporary folders.
pub fn command_isolation(config: &Config, temporary: PathBuf) -> HostIsolation {
    let (folders, policy) = (hidden(config), config.isolation);
    HostIsolation::with_preparation(Sandbox::unavailable(policy), move || {
        (
            Sandbox::probe(OWN_PROGRAM.as_ref(), folders, temporary, policy),
            ControlGroups::default(),
        )
    })
}

/// The folders that children do not see, and the home of the operator.
fn hidden(config: &Config) -> (Vec<PathBuf>, Option<PathBuf>) {
    let mut hidden = vec![
        config.data.path().to_owned(),
        config.workspaces.root.clone(),
    ];
    hidden.extend(config.workspaces.allow.iter().cloned());
    (hidden, config.child_environment.home.clone())
}
