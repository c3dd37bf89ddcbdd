//! The processes that may send telemetry to the gateway. Each one has a token in its environment, which is valid until the
//! process has ended.

use std::collections::HashMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::spec::AgentSpec;
use base::shutdown::lock_or_abort;
use base::types::{AgentName, Ids, SessionId};

/// The requests of one process. By default, an SDK sends logs every second, spans every five seconds and metrics every minute.
const REQUESTS_PER_MINUTE: NonZeroU32 = NonZeroU32::new(120).expect("it is not 0");
/// The open requests of one process. An SDK sends each of its three signals on its own.
const MAX_OPEN_REQUESTS: usize = 4;
/// The wait of a process with too many open requests.
const OPEN_REQUESTS_WAIT: Duration = Duration::from_secs(1);

/// The table of live processes by token. A cheap handle.
#[derive(Clone, derive_more::Debug)]
#[debug("TelemetrySources")]
pub struct TelemetrySources {
    receiver: SocketAddr,
    ids: Ids,
    // The hash of the map has a random key, so the time of a lookup reveals nothing about other tokens.
    by_token: Arc<Mutex<HashMap<Box<str>, Arc<TelemetrySource>>>>,
}

/// One process.
pub struct TelemetrySource {
    pub agent: AgentName,
    sessions: Mutex<Sessions>,
    requests: DefaultDirectRateLimiter,
    open: Arc<Semaphore>,
}

/// The sessions that a process has served. After the second one, its telemetry does not show which session it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sessions {
    None,
    One(SessionId),
    Several,
}

/// The admission of one process. Dropping it ends the validity of its token.
#[derive(derive_more::Debug)]
#[debug("TelemetryAdmission")]
pub(super) struct TelemetryAdmission {
    sources: TelemetrySources,
    token: Box<str>,
    source: Arc<TelemetrySource>,
}

impl TelemetrySources {
    /// `receiver`: the address that accepts the telemetry.
    pub fn new(receiver: SocketAddr, ids: Ids) -> Self {
        Self {
            receiver,
            ids,
            by_token: Arc::default(),
        }
    }

    /// The live process with this token.
    pub fn find(&self, token: &str) -> Option<Arc<TelemetrySource>> {
        lock_or_abort(self.by_token.lock()).get(token).cloned()
    }

    pub(super) fn admit(&self, agent: &AgentName) -> TelemetryAdmission {
        let token: Box<str> = URL_SAFE_NO_PAD.encode(self.ids.secret()).into();
        let source = Arc::new(TelemetrySource {
            agent: agent.clone(),
            sessions: Mutex::new(Sessions::None),
            requests: RateLimiter::direct(Quota::per_minute(REQUESTS_PER_MINUTE)),
            open: Arc::new(Semaphore::new(MAX_OPEN_REQUESTS)),
        });
        lock_or_abort(self.by_token.lock()).insert(token.clone(), Arc::clone(&source));
        TelemetryAdmission {
            sources: self.clone(),
            token,
            source,
        }
    }
}

impl TelemetrySource {
    /// The session of the process, if it has served exactly one.
    pub fn session(&self) -> Option<SessionId> {
        match *lock_or_abort(self.sessions.lock()) {
            Sessions::One(session) => Some(session),
            Sessions::None | Sessions::Several => None,
        }
    }

    /// Counts one request, until the permit is dropped. An error is the time after which the process may try again.
    pub fn begin_request(&self) -> Result<OwnedSemaphorePermit, Duration> {
        self.requests
            .check()
            .map_err(|full| full.wait_time_from(DefaultClock::default().now()))?;
        let permit = Arc::clone(&self.open).try_acquire_owned();
        permit.map_err(|_| OPEN_REQUESTS_WAIT)
    }
}

impl TelemetryAdmission {
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// The variables that SDKs of OpenTelemetry read. A variable of the entry has precedence, and the configuration rejects
    /// entries that send the token elsewhere.
    pub(super) fn variables(&self, spec: &AgentSpec) -> Vec<(OsString, OsString)> {
        let variables = [
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                format!("http://{}", self.sources.receiver),
            ),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf".to_owned()),
            // The values of headers are percent-encoded.
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                format!("authorization=Bearer%20{}", self.token),
            ),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "none".to_owned()),
            ("OTEL_SERVICE_NAME", spec.name.to_string()),
            ("OTEL_TRACES_EXPORTER", "otlp".to_owned()),
            ("OTEL_METRICS_EXPORTER", "otlp".to_owned()),
            ("OTEL_LOGS_EXPORTER", "otlp".to_owned()),
        ];
        let variables = variables.into_iter();
        let missing = variables.filter(|(name, _)| !spec.has_variable(name));
        missing
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    }

    pub(super) fn record_session(&self, session: SessionId) {
        let mut sessions = lock_or_abort(self.source.sessions.lock());
        *sessions = match *sessions {
            Sessions::None => Sessions::One(session),
            Sessions::One(one) if one == session => Sessions::One(one),
            Sessions::One(_) | Sessions::Several => Sessions::Several,
        };
    }
}

impl Drop for TelemetryAdmission {
    fn drop(&mut self) {
        lock_or_abort(self.sources.by_token.lock()).remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> TelemetrySources {
        TelemetrySources::new("127.0.0.1:4318".parse().unwrap(), Ids::system())
    }

    #[test]
    fn token_is_valid_until_the_process_has_ended() {
        let sources = sources();
        let admission = sources.admit(&"a".parse().unwrap());
        let other = sources.admit(&"b".parse().unwrap());
        let token = admission.token().to_owned();
        assert_eq!(token.len(), 43, "256 bits in base64");
        assert_eq!(sources.find(&token).unwrap().agent.as_str(), "a");
        assert_eq!(sources.find(other.token()).unwrap().agent.as_str(), "b");
        assert!(sources.find("").is_none());
        drop(admission);
        assert!(sources.find(&token).is_none());
        assert!(!format!("{other:?} {sources:?}").contains(other.token()));
    }

    #[test]
    fn variables_of_the_entry_have_precedence() {
        let sources = sources();
        let admission = sources.admit(&"a".parse().unwrap());
        let mut spec = AgentSpec::removed("a".parse().unwrap());
        spec.env = vec![("OTEL_LOGS_EXPORTER".into(), "none".into())];
        let variables = admission.variables(&spec);
        let value = |name: &str| {
            let mut variables = variables.iter();
            let (_, value) = variables.find(|(known, _)| known == name)?;
            value.to_str()
        };
        let header = format!("authorization=Bearer%20{}", admission.token());
        assert_eq!(value("OTEL_EXPORTER_OTLP_HEADERS"), Some(&*header));
        assert_eq!(
            value("OTEL_EXPORTER_OTLP_ENDPOINT"),
            Some("http://127.0.0.1:4318")
        );
        assert_eq!(value("OTEL_SERVICE_NAME"), Some("a"));
        assert_eq!(value("OTEL_TRACES_EXPORTER"), Some("otlp"));
        assert_eq!(value("OTEL_LOGS_EXPORTER"), None);
    }

    #[test]
    fn session_is_known_only_if_there_was_one() {
        let sources = sources();
        let admission = sources.admit(&"a".parse().unwrap());
        let source = sources.find(admission.token()).unwrap();
        let first = Ids::system().session();
        assert_eq!(source.session(), None);
        admission.record_session(first);
        admission.record_session(first);
        assert_eq!(source.session(), Some(first));
        admission.record_session(Ids::system().session());
        admission.record_session(first);
        assert_eq!(source.session(), None);
    }

    #[test]
    fn requests_of_a_process_are_bounded() {
        let sources = sources();
        let admission = sources.admit(&"a".parse().unwrap());
        let source = sources.find(admission.token()).unwrap();
        let open: Vec<_> = (0..MAX_OPEN_REQUESTS)
            .map(|_| source.begin_request().unwrap())
            .collect();
        assert_eq!(source.begin_request().unwrap_err(), OPEN_REQUESTS_WAIT);
        drop(open);
        let requests = (0..2 * REQUESTS_PER_MINUTE.get()).map(|_| source.begin_request().is_ok());
        let admitted = requests.filter(|is_admitted| *is_admitted).count();
        assert!((1..200).contains(&admitted), "{admitted}");
    }
}
