//! The sessions that a reader of many sessions follows.

use std::collections::HashMap;
use std::sync::Arc;

use super::shares::Shares;
use crate::store::Run;
use base::types::{KeyedCounts, KeyedGuard, SessionId, UserId};

/// The sessions that a reader follows. Sessions to which the user has no access are never part of them, also if they are
/// named.
#[derive(Debug, Clone)]
pub struct GlobalScope {
    pub owner: UserId,
    /// Whether the sessions of others that are shared with the user are part of them.
    pub with_shared: bool,
    /// The sessions, each with an optional start: after the event with this seq. `None`: every session of the
    /// user, including later ones.
    pub sessions: Option<HashMap<SessionId, Option<u64>>>,
}

/// A [`GlobalScope`] with resolved starts.
#[derive(Debug)]
pub(super) struct Scope {
    pub(super) owner: UserId,
    /// The grants of sessions of others. `None`: only sessions of the user.
    pub(super) shares: Option<Arc<Shares>>,
    pub(super) sessions: Option<HashMap<SessionId, LowerBound>>,
}

/// Events of a session up to this seq and this position are excluded.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LowerBound {
    pub(super) seq: u64,
    pub(super) pos: u64,
}

impl Scope {
    pub(super) fn contains(&self, owner: &str, session: SessionId) -> bool {
        let sessions = self.sessions.as_ref();
        sessions.is_none_or(|of| of.contains_key(&session))
            && (self.owner.as_str() == owner || self.is_shared(session))
    }

    fn is_shared(&self, session: SessionId) -> bool {
        let shares = self.shares.as_ref();
        shares.is_some_and(|shares| shares.access(session, &self.owner).is_some())
    }

    /// Whether a damaged run that ends at this seq and this position belongs to the scope.
    pub(super) fn covers_damage(&self, session: SessionId, last_seq: u64, last_pos: u64) -> bool {
        let Some(of) = &self.sessions else {
            return true;
        };
        let floor = of.get(&session);
        floor.is_some_and(|floor| floor.seq < last_seq && floor.pos < last_pos)
    }

    /// The part of a run that belongs to the scope.
    pub(super) fn clip(&self, run: Run) -> Option<Run> {
        if !self.contains(run.owner.as_str(), run.session) {
            return None;
        }
        match self.sessions.as_ref().and_then(|of| of.get(&run.session)) {
            Some(floor) => run.after(floor.seq)?.after_pos(floor.pos),
            None => Some(run),
        }
    }

    /// The same sessions from their beginning.
    pub(super) fn without_bounds(&self) -> Self {
        let unbounded = |of: &HashMap<SessionId, LowerBound>| {
            let sessions = of.keys().map(|session| (*session, LowerBound::default()));
            sessions.collect()
        };
        Self {
            owner: self.owner.clone(),
            shares: self.shares.clone(),
            sessions: self.sessions.as_ref().map(unbounded),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ReaderScope {
    Session(SessionId),
    User(UserId),
}

#[derive(Debug, Default)]
pub(super) struct Readers(KeyedCounts<ReaderScope>);

/// Registers a reader until it is dropped.
pub(super) type ReaderRegistration = KeyedGuard<ReaderScope>;

impl Readers {
    pub(super) fn register(&self, scope: ReaderScope) -> ReaderRegistration {
        let registration = self.0.acquire(scope, usize::MAX);
        registration.expect("the number of readers has no limit")
    }
    pub(super) fn has_reader(&self, owner: &UserId, session: SessionId) -> bool {
        self.0.count(&ReaderScope::Session(session)) > 0 || self.follows(owner.clone())
    }

    /// Whether the user has a reader of all sessions.
    pub(super) fn follows(&self, user: UserId) -> bool {
        self.0.count(&ReaderScope::User(user)) > 0
    }
}
