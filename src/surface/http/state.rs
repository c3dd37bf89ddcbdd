//! The state that all surfaces share.

use std::ops::Deref;
use std::sync::Arc;

use axum::response::Response;

use crate::auth::{Admission, Policy};
use crate::registry::Listing;
use crate::server::{BodyMemory, RateLimits, RequestContext, stream_response};
use crate::stream::{
    Encoder, EventTypes, Feed, KeepAliveTicker, Source, Stream, StreamGuard, Streams,
};
use agents::agent::CurrentCatalogue;
use agents::cca::CcaMembers;
use agents::pool::Pool;
use base::shutdown::Shutdown;
use base::types::{Author, Epoch, Ids, KeyedCounts, Limits, PrincipalLimits, PromptId, SessionId};
use events::event::RejectReason;
use log::audit::{Audit, Counted};
use log::eventlog::EventLog;
use sessions::broadcast::{self, Broadcasts};
use sessions::conversation::{self, Conversations};
use sessions::session::SessionRegistry;
use sessions::task::Tasks;
use sessions::webhooks::Webhooks;
use wire::fleet::Fleet;

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

#[derive(Clone, derive_more::Debug)]
#[debug("Gateway")]
pub struct Gateway(Arc<Shared>);

struct Shared {
    parts: GatewayParts,
    requests: Arc<RequestContext>,
    streams: Streams,
    cca: Arc<CcaMembers>,
    broadcasts: Broadcasts,
    conversations: Conversations,
    chat_watchers: KeyedCounts<(SessionId, PromptId)>,
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
        let conversations = conversation::start(&parts.sessions);
        let cca = Arc::<CcaMembers>::default();
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
            cca,
            broadcasts,
            conversations,
            chat_watchers: KeyedCounts::default(),
            keep_alive_ticker,
        }))
    }

    pub(crate) fn log(&self) -> &EventLog {
        &self.sessions.context().log
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.sessions.context().pool
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.log().epoch()
    }

    pub(crate) fn feed(&self, source: Source) -> Feed {
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

    pub(crate) fn requests(&self) -> &Arc<RequestContext> {
        &self.0.requests
    }

    pub(crate) fn rates(&self) -> &RateLimits {
        &self.0.requests.rates
    }

    pub(crate) fn audit_forbidden(&self, author: &Author) {
        let event = Counted::RequestRejected(RejectReason::Forbidden);
        self.audit.counted().by_key(author, event, self.ids.now());
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.0.streams
    }

    pub(crate) fn conversations(&self) -> &Conversations {
        &self.0.conversations
    }

    /// The clients of turns that end with their last client.
    pub(crate) fn chat_watchers(&self) -> &KeyedCounts<(SessionId, PromptId)> {
        &self.0.chat_watchers
    }

    pub(crate) fn cca(&self) -> &Arc<CcaMembers> {
        &self.0.cca
    }

    pub(crate) fn broadcasts(&self) -> &Broadcasts {
        &self.0.broadcasts
    }

    /// The response that streams the feed. During a drain, it is also a stream, with a `shutdown` frame only. A
    /// status would stop an `EventSource` from reconnecting.
    pub(crate) fn stream_response(
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
