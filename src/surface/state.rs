//! The state that all surfaces share.

use std::ops::Deref;
use std::sync::Arc;

use axum::response::Response;

use super::acp::Connections;
use super::chat::Watchers;
use crate::agent::CurrentCatalogue;
use crate::audit::{Audit, Counted};
use crate::auth::{Admission, Policy};
use crate::broadcast::{self, Broadcasts};
use crate::cca::CcaMembers;
use crate::conversation::{self, Conversations};
use crate::event::RejectReason;
use crate::eventlog::EventLog;
use crate::fleet::Fleet;
use crate::pool::Pool;
use crate::registry::Listing;
use crate::server::{BodyMemory, RateLimits, RequestContext, stream_response};
use crate::session::SessionRegistry;
use crate::shutdown::Shutdown;
use crate::stream::{
    Encoder, EventTypes, Feed, KeepAliveTicker, Source, Stream, StreamGuard, Streams,
};
use crate::task::Tasks;
use crate::types::{Author, Epoch, Ids, Limits, PrincipalLimits};
use crate::webhooks::Webhooks;

/// The components that the composition root passes to the gateway.
#[derive(Debug)]
pub struct GatewayParts {
    pub sessions: SessionRegistry,
    pub registry: Listing,
    pub catalogue: CurrentCatalogue,
    pub policy: Arc<Policy>,
    pub fleet: Fleet,
    pub tasks: Tasks,
    pub webhooks: Webhooks,
    pub ids: Ids,
    pub audit: Audit,
    pub limits: Arc<Limits>,
    pub principal_limits: PrincipalLimits,
    pub shutdown: Shutdown,
}

/// A cheap handle to the shared state.
#[derive(Debug, Clone)]
pub struct Gateway(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    parts: GatewayParts,
    requests: Arc<RequestContext>,
    streams: Streams,
    acp: Connections,
    cca: Arc<CcaMembers>,
    broadcasts: Broadcasts,
    conversations: Conversations,
    /// The clients of turns that end with their last client.
    chat_watchers: Watchers,
    keep_alive_ticker: KeepAliveTicker,
}

impl Gateway {
    pub fn new(parts: GatewayParts) -> Self {
        let requests = Arc::new(RequestContext {
            policy: Arc::clone(&parts.policy),
            ids: parts.ids.clone(),
            shutdown: parts.shutdown.clone(),
            rates: RateLimits::new(parts.principal_limits.clone()),
            bodies: BodyMemory::new(parts.limits.max_body_memory_bytes),
        });
        let streams = Streams::new(parts.principal_limits.clone());
        let keep_alive_ticker = KeepAliveTicker::new(
            &parts.limits,
            parts.shutdown.clone(),
            parts.policy.watch_ended_keys(),
        );
        let chat_watchers = Watchers::default();
        let conversations = conversation::start(&parts.sessions);
        let (acp, cca) = (Connections::default(), Arc::<CcaMembers>::default());
        let broadcasts = Broadcasts::new(broadcast::Parts {
            sessions: parts.sessions.clone(),
            pool: parts.sessions.context().pool.clone(),
            catalogue: parts.catalogue.clone(),
            fleet: parts.fleet.clone(),
            cca: Arc::clone(&cca),
            audit: parts.audit.clone(),
            ids: parts.ids.clone(),
        });
        Self(Arc::new(Shared {
            parts,
            requests,
            streams,
            acp,
            cca,
            broadcasts,
            conversations,
            chat_watchers,
            keep_alive_ticker,
        }))
    }

    pub(super) fn log(&self) -> &EventLog {
        &self.sessions.context().log
    }

    pub(super) fn pool(&self) -> &Pool {
        &self.sessions.context().pool
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.log().epoch()
    }

    /// All events of a source, from its position.
    pub(super) fn feed(&self, source: Source) -> Feed {
        Feed {
            client_cursor: source.cursor(),
            source,
            types: EventTypes::All,
            turn: None,
            from_tail: false,
            epoch: self.epoch(),
            ids: self.ids.clone(),
        }
    }

    pub(super) fn requests(&self) -> &Arc<RequestContext> {
        &self.0.requests
    }

    pub(super) fn rates(&self) -> &RateLimits {
        &self.0.requests.rates
    }

    /// Counts a request for the audit log that the key of its author does not permit.
    pub(super) fn audit_forbidden(&self, author: &Author) {
        let event = Counted::RequestRejected(RejectReason::Forbidden);
        self.audit.counted().by_key(author, event, self.ids.now());
    }

    pub(super) fn streams(&self) -> &Streams {
        &self.0.streams
    }

    /// The connections of ACP clients.
    pub(super) fn acp(&self) -> &Connections {
        &self.0.acp
    }

    pub(super) fn conversations(&self) -> &Conversations {
        &self.0.conversations
    }

    /// The clients of turns that end with their last client.
    pub(super) fn chat_watchers(&self) -> &Watchers {
        &self.0.chat_watchers
    }

    /// The members of the dialect `cca`.
    pub(super) fn cca(&self) -> &Arc<CcaMembers> {
        &self.0.cca
    }

    pub(super) fn broadcasts(&self) -> &Broadcasts {
        &self.0.broadcasts
    }

    /// The response that streams the feed. During a drain, it is also a stream, with a `shutdown` frame only. A
    /// status would stop an `EventSource` from reconnecting.
    pub(super) fn stream_response(
        &self,
        admission: &Arc<Admission>,
        guard: StreamGuard,
        feed: Feed,
        encoder: Box<dyn Encoder>,
        follow: bool,
    ) -> Response {
        let keep_alive = self.0.keep_alive_ticker.register();
        stream_response(Stream::new(
            feed,
            encoder,
            follow,
            Arc::clone(admission),
            keep_alive,
            guard,
        ))
    }
}

impl Deref for Gateway {
    type Target = GatewayParts;

    fn deref(&self) -> &GatewayParts {
        &self.0.parts
    }
}
