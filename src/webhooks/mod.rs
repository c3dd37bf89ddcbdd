//! Webhooks: HTTPS requests that report events of sessions and ends of tasks, in the format of Standard Webhooks.
//!
//! A follower reads the log of a tenant and stores a delivery for each event that a webhook selects, together with its
//! position in the log. A sender sends stored deliveries and repeats failed ones. After a crash, both continue from their
//! records. A delivery that was sent and not recorded is sent again with the same id.
//!
//! The end of a task is committed with its deliveries, for webhooks and for the callback of the task.
//!
//! The module must not know sessions, HTTP routes or agents.
//!
//! Reading order: [`secret`] and [`target`] (the format and the rules), [`webhook`] and [`delivery`] (the records),
//! [`records`] (their keys), [`handle`], [`follower`] and [`sender`], and [`service`] (the tasks).
//!
//! Rejected designs:
//!
//! - Deliveries from the actor of a session: the actor would be a second path for events beside the log.
//! - A webhook for each session: clients would repeat it for each session, and a list of all webhooks would be
//!   missing.
//! - Webhooks for `session.update` and `terminal.output`: one turn would cause thousands of requests.

mod delivery;
mod follower;
mod handle;
mod message;
mod records;
mod secret;
mod sender;
mod service;
mod target;
mod webhook;

pub use delivery::{Attempt, Delivery, DeliveryState};
pub use handle::{CreateError, OpenError, RepeatError, TaskReport, WebhookOptions, Webhooks};
pub use service::start;
pub use target::TargetError;
pub use webhook::{EVENT_TYPES, Webhook};
