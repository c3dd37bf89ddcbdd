//! `crates/log/src/eventlog/`, compiled unchanged for shuttle. The stores have no model: they are those of the gateway.

extern crate model_std as std;

#[path = "../../../crates/log/src/eventlog/mod.rs"]
pub mod eventlog;

pub mod limits {
    pub use acp_gateway_log::limits::Limits;

    /// The models have few readers, and a pass must have several batches.
    pub(crate) const NOTIFY_BATCH: usize = 1;
}

pub mod store {
    pub use acp_gateway_log::store::*;
}

pub mod audit {
    /// The audit log is not part of the models.
    #[derive(Clone)]
    pub struct Audit;
}
