//! The open requests: the gateway's source. Files and terminals are not part of the model.

#[expect(
    dead_code,
    reason = "the model has no request that only a follower extends"
)]
#[path = "../../../../crates/sessions/src/session/requests/offer.rs"]
mod offer;
#[expect(dead_code, reason = "other parts of a session use the remaining items")]
#[path = "../../../../crates/sessions/src/session/requests/open.rs"]
mod open;

pub(super) use offer::{Offer, Wait};
pub(super) use open::{EndedBy, Requests};

use self::work::Work;
use super::journal::Journal;
use base::types::Author;
use events::api::{PendingRequest, Resolution};
use log::audit::Audit;
use wire::acp::Outcome;
use workspace::AgentTerminals;

mod allowed_calls {
    use log::audit::Audit;

    pub(crate) struct AllowedCalls;

    impl AllowedCalls {
        pub(crate) fn new(_: Audit) -> Self {
            Self
        }

        #[expect(clippy::unused_self, reason = "same signature as in the gateway")]
        pub(crate) fn end(&mut self) {}
    }
}

mod client_tools {
    use tokio::time::Instant;

    #[derive(Default)]
    pub(crate) struct ToolClients(());

    impl ToolClients {
        #[expect(clippy::unused_self, reason = "same signature as in the gateway")]
        pub(crate) fn deadline(&self) -> Option<Instant> {
            None
        }

        #[expect(clippy::unused_self, reason = "same signature as in the gateway")]
        pub(crate) fn process_released(&mut self) {}
    }
}

mod work {
    pub(crate) struct Work;

    impl Work {
        #[expect(clippy::unused_self, reason = "same signature as in the gateway")]
        pub(crate) fn process_released(&mut self) {}
    }
}

pub(super) fn requests() -> Requests {
    Requests::new(Work, AgentTerminals::default(), Audit)
}

impl Requests {
    #[expect(clippy::unused_self, reason = "same signature as in the gateway")]
    fn audit_decision(
        &mut self,
        _: &Journal,
        _: &PendingRequest,
        _: Resolution,
        _: Option<&Author>,
        _: &Outcome,
    ) {
    }

    #[expect(clippy::unused_self, reason = "same signature as in the gateway")]
    fn served_by_client(&mut self, _: &PendingRequest, outcome: Outcome) -> Outcome {
        outcome
    }
}
