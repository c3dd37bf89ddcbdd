//! The parts of the gateway that broadcasts use.

use std::sync::Arc;

use crate::agent::CurrentCatalogue;
use crate::audit::Audit;
use crate::cca::CcaMembers;
use crate::fleet::Fleet;
use crate::pool::Pool;
use crate::session::SessionRegistry;
use crate::types::Ids;

/// The parts of the gateway that broadcasts use.
#[derive(Debug, Clone)]
pub struct Parts {
    pub sessions: SessionRegistry,
    pub pool: Pool,
    pub catalogue: CurrentCatalogue,
    pub fleet: Fleet,
    pub cca: Arc<CcaMembers>,
    pub audit: Audit,
    pub ids: Ids,
}
