//! Webhooks: HTTPS requests that report events of sessions and ends of tasks, in the format of Standard Webhooks.
//!
//! A follower reads the log of a user and stores a delivery for each event that a webhook selects, together with its
//! position in the log. A sender sends stored deliveries and repeats failed ones. After a crash, both continue from their
//! records. A delivery that was sent and not recorded is sent again with the same id.
//!
//! The end of a task is committed with its deliveries, for webhooks and for the callback of the task.
//!
//! The module must not know sessions, HTTP routes or agents.
//!
//! Reading order: [`target`] (the format and the rules), [`delivery`] (webhooks, deliveries and their records), [`handle`],
//! [`sender`], and [`follower`] (which also starts the tasks).
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
mod sender;
mod target;

pub use delivery::WebhookRecord;
pub use follower::start;
pub use handle::{CreateError, OpenError, RepeatError, WebhookOptions, Webhooks};
pub use target::TargetError;
