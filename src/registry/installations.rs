//! The installation that an administrator orders over HTTP. One runs at a time, and its state stays until the next one.
//!
//! The command `agent add` and this order have the same steps. The order comes from a key, so it names no program, no URL and no
//! option: only an agent that the list of this gateway shows.

use std::ffi::OsString;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;

use super::install::Step;
use base::shutdown::lock_or_abort;
use base::types::{AgentName, Author};
use children::resolve;
use events::api::{Installation, InstallationSource, InstallationStatus};
use events::event::{AttemptOutcome, AuditActor, InstallationEnded, InstallationStarted};
use log::audit::Audit;
use wire::acp::KnownAgent;
use wire::acp::known_agents::KNOWN;

/// The agents that keys with the scope `admin` may add.
#[derive(Debug, Clone)]
pub struct Permissions {
    /// Agents of the registry.
    pub registry: bool,
    /// The PATH on which known agents may be. `None` if the gateway is not for its operator alone, because such an agent runs
    /// with the home of the operator.
    pub path: Option<OsString>,
}

/// An accepted order.
#[derive(Debug, Clone)]
pub struct Order {
    pub agent: AgentName,
    /// The version that the registry must have.
    pub version: Option<String>,
    /// `None`: the agent comes from the registry.
    pub found: Option<FoundAgent>,
    actor: AuditActor,
}

/// A known agent on PATH.
#[derive(Debug, Clone, Copy)]
pub struct FoundAgent {
    pub known: &'static KnownAgent,
    pub command: &'static str,
}

/// The result of an order, or the reason of the failure.
pub type Outcome = Result<Added, String>;

/// An agent that the next reload adds to the catalogue.
#[derive(Debug, Default)]
pub struct Added {
    pub sign_in: Vec<String>,
    pub key_variables: Vec<String>,
    pub received_variables: Vec<String>,
    pub inherits: bool,
    /// `None`: the agent needs no entry.
    pub config_file: Option<String>,
}

/// The reason why an order was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    #[error("the gateway adds {0}; try again at its end")]
    Running(AgentName),
    #[error("the gateway stops")]
    Stopping,
}

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Installations(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    permissions: Permissions,
    latest: Mutex<Option<Installation>>,
    orders: mpsc::Sender<Order>,
    audit: Audit,
}

impl Installations {
    /// The receiver belongs to the task that runs the orders.
    pub fn new(permissions: Permissions, audit: Audit) -> (Self, mpsc::Receiver<Order>) {
        let (orders, received) = mpsc::channel(1);
        let inner = Inner {
            permissions,
            latest: Mutex::default(),
            orders,
            audit,
        };
        (Self(Arc::new(inner)), received)
    }

    pub fn permits_registry(&self) -> bool {
        self.0.permissions.registry
    }

    pub fn latest(&self) -> Option<Installation> {
        lock_or_abort(self.0.latest.lock()).clone()
    }

    /// Whether the gateway is for its operator alone.
    pub fn is_personal(&self) -> bool {
        self.0.permissions.path.is_some()
    }

    /// The known agents whose command is on PATH, each with its command.
    pub fn on_path(&self) -> Vec<FoundAgent> {
        let Some(path) = &self.0.permissions.path else {
            return Vec::new();
        };
        let found = KNOWN.iter().filter_map(|known| {
            let mut commands = known.commands.iter().copied();
            let is_found = |command: &&str| resolve((*command).as_ref(), path).is_ok();
            let command = commands.find(is_found)?;
            Some(FoundAgent { known, command })
        });
        found.collect()
    }

    /// Accepts an order. The caller has checked that the gateway offers the agent.
    pub fn order(
        &self,
        author: &Author,
        agent: AgentName,
        version: Option<String>,
        found: Option<FoundAgent>,
    ) -> Result<Installation, OrderError> {
        let mut latest = lock_or_abort(self.0.latest.lock());
        if let Some(running) = &*latest
            && running.status == InstallationStatus::Running
        {
            return Err(OrderError::Running(running.agent.clone()));
        }
        let order = Order {
            agent: agent.clone(),
            version: version.clone(),
            found,
            actor: author.into(),
        };
        let from = match found {
            Some(_) => InstallationSource::Path,
            None => InstallationSource::Registry,
        };
        let actor = order.actor.clone();
        // The channel has a place, because no other order runs. It is closed while the gateway stops.
        let sent = self.0.orders.try_send(order);
        sent.map_err(|_| OrderError::Stopping)?;
        let started = InstallationStarted {
            agent: agent.clone(),
            source: from,
            version,
        };
        self.0.audit.append(actor, started);
        let installation = Installation {
            agent,
            from,
            status: InstallationStatus::Running,
            step: None,
            bytes: None,
            total_bytes: None,
            detail: None,
            sign_in: Vec::new(),
            key_variables: Vec::new(),
            received_variables: Vec::new(),
            inherits: false,
            config_file: None,
        };
        *latest = Some(installation.clone());
        Ok(installation)
    }

    /// Shows the step of the order that runs.
    pub fn show(&self, step: Step<'_>) {
        if let Some(running) = &mut *lock_or_abort(self.0.latest.lock()) {
            let (bytes, total_bytes) = step.amount().unzip();
            running.step = Some(step.to_string());
            running.bytes = bytes;
            running.total_bytes = total_bytes.flatten();
        }
    }

    /// Ends an accepted order. `None`: the gateway stops.
    pub fn end(&self, order: Order, outcome: Option<Outcome>) {
        // The audit log has the start of an order before its end.
        let mut latest = lock_or_abort(self.0.latest.lock());
        let event = InstallationEnded {
            agent: order.agent,
            outcome: match &outcome {
                Some(Ok(_)) => AttemptOutcome::Succeeded,
                Some(Err(_)) => AttemptOutcome::Failed,
                None => AttemptOutcome::Aborted,
            },
        };
        self.0.audit.append(order.actor, event);
        let outcome = outcome.unwrap_or_else(|| Err("the gateway stopped".to_owned()));
        let Some(ended) = &mut *latest else { return };
        ended.bytes = None;
        ended.total_bytes = None;
        match outcome {
            Ok(added) => {
                ended.status = InstallationStatus::Succeeded;
                ended.sign_in = added.sign_in;
                ended.key_variables = added.key_variables;
                ended.received_variables = added.received_variables;
                ended.inherits = added.inherits;
                ended.config_file = added.config_file;
            }
            Err(reason) => {
                ended.status = InstallationStatus::Failed;
                ended.detail = Some(reason);
            }
        }
    }
}
