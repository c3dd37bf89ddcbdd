//! The sessions that a reader of many sessions follows.

use std::collections::HashMap;

use crate::store::Run;
use crate::types::{SessionId, Tenant};

/// The sessions that a reader follows.
#[derive(Debug, Clone)]
pub struct GlobalScope {
    pub tenant: Tenant,
    /// The sessions, each with an optional start: after the event with this seq. `None`: every session of the
    /// tenant, including later ones.
    pub sessions: Option<HashMap<SessionId, Option<u64>>>,
}

/// A [`GlobalScope`] with resolved starts.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) tenant: Tenant,
    pub(super) sessions: Option<HashMap<SessionId, LowerBound>>,
}

/// Events of a session up to this seq and this position are excluded.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LowerBound {
    pub(super) seq: u64,
    pub(super) pos: u64,
}

impl Scope {
    pub(super) fn contains(&self, tenant: &str, session: SessionId) -> bool {
        self.tenant.as_str() == tenant
            && self
                .sessions
                .as_ref()
                .is_none_or(|of| of.contains_key(&session))
    }

    /// Whether a damaged run that ends at this seq and this position belongs to the scope.
    pub(super) fn covers_damage(&self, session: SessionId, last_seq: u64, last_pos: u64) -> bool {
        self.sessions.as_ref().is_none_or(|of| {
            of.get(&session)
                .is_some_and(|floor| floor.seq < last_seq && floor.pos < last_pos)
        })
    }

    /// The part of a run that belongs to the scope.
    pub(super) fn clip(&self, run: Run) -> Option<Run> {
        if !self.contains(run.tenant.as_str(), run.session) {
            return None;
        }
        match self.sessions.as_ref().and_then(|of| of.get(&run.session)) {
            Some(floor) => run.after(floor.seq)?.after_pos(floor.pos),
            None => Some(run),
        }
    }

    /// The same sessions from their beginning.
    pub(super) fn without_bounds(&self) -> Self {
        let of = self.sessions.as_ref();
        let sessions = of.map(|of| {
            of.keys()
                .map(|session| (*session, LowerBound::default()))
                .collect()
        });
        Self {
            tenant: self.tenant.clone(),
            sessions,
        }
    }
}
