//! Tables of inputs and effects of the clients that need the agent outside a turn, without a process or time.
//!
//! All times are seconds after one base time. The deadline of a client identifies the client in a table.

mod encode;
mod waits;

use tokio::sync::oneshot;

use super::*;
use base::types::{SessionId, UserId};
use wire::acp::CancelTarget;
use wire::jsonrpc::PendingTables;

const SESSION: &str = "01938c5e-7a3b-7c4d-8e5f-0123456789ab";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A client that waits or a call that was sent, with its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Creating(u64),
    Attaching(u64),
    Queued(u64),
    Sent(u64),
}

use Client::{Attaching, Creating, Queued, Sent};

/// The part under test, and the ids of its calls.
struct Fixture {
    part: ClientCalls,
    calls: PendingTables,
    base: Instant,
}

impl Fixture {
    fn new(clients: &[Client]) -> Self {
        let part = ClientCalls::default();
        let calls = PendingTables::default();
        let mut fixture = Self {
            part,
            calls,
            base: Instant::now(),
        };
        for client in clients {
            fixture.add(*client, None);
        }
        fixture
    }

    fn at(&self, seconds: u64) -> Instant {
        self.base + Duration::from_secs(seconds)
    }

    fn seconds(&self, at: Instant) -> u64 {
        at.duration_since(self.base).as_secs()
    }

    fn add(&mut self, client: Client, trace: Option<&str>) {
        let trace = trace.and_then(|parent| TraceContext::parse(parent, None));
        match client {
            Creating(deadline) => self.create(Origin::New, deadline, trace),
            Attaching(deadline) => {
                let reply = oneshot::channel().0;
                let deadline = self.at(deadline);
                self.part.wait_for_binding(BindingWaiter {
                    trace,
                    reply,
                    deadline,
                });
            }
            Queued(deadline) => {
                let call = PendingCall {
                    trace,
                    ..self.call(ClientCall::Fork, deadline)
                };
                self.part.enqueue(call);
            }
            Sent(deadline) => {
                let call = self.call(ClientCall::Fork, 0);
                let limits = Limits {
                    session_new_timeout: Duration::from_secs(deadline),
                    ..Limits::default()
                };
                let id = self.calls.register_call();
                self.part.sent(id, call, &limits, self.base);
            }
        }
    }

    fn create(&mut self, origin: Origin, deadline: u64, trace: Option<TraceContext>) {
        let reply = oneshot::channel().0;
        let deadline = self.at(deadline);
        self.part.wait_for_creation(CreateWaiter {
            origin,
            servers: Vec::new(),
            claim: None,
            trace,
            reply,
            deadline,
        });
    }

    fn call(&self, call: ClientCall, deadline: u64) -> PendingCall {
        let by = Principal {
            is_local: false,
            user: UserId::from_text("default/alice"),
            scopes: std::iter::empty().collect(),
            folders: base::types::GrantedFolders::default(),
        };
        PendingCall {
            by,
            call,
            trace: None,
            reply: oneshot::channel().0,
            deadline: self.at(deadline),
        }
    }

    /// The clients in the order creating, attaching, queued.
    fn waiters(
        &self,
        Waiters {
            creating,
            attaching,
            queued,
        }: &Waiters,
    ) -> Vec<Client> {
        let creating = creating
            .iter()
            .map(|waiter| Creating(self.seconds(waiter.deadline)));
        let attaching = attaching
            .iter()
            .map(|waiter| Attaching(self.seconds(waiter.deadline)));
        let queued = queued
            .iter()
            .map(|call| Queued(self.seconds(call.deadline)));
        creating.chain(attaching).chain(queued).collect()
    }

    /// Takes all clients that wait for a process.
    fn take(&mut self) -> Vec<Client> {
        let waiters = self.part.take_waiters();
        self.waiters(&waiters)
    }
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn session() -> SessionId {
    SESSION.parse().unwrap()
}

/// One call of each kind.
fn calls() -> [ClientCall; 7] {
    [
        ClientCall::Mode("ask".to_owned()),
        ClientCall::Config {
            option: "web".to_owned(),
            value: raw("true"),
        },
        ClientCall::Cancel(CancelTarget::ToolCall("c".to_owned())),
        ClientCall::Cancel(CancelTarget::Terminal("t".to_owned())),
        ClientCall::Fork,
        ClientCall::Forked(raw(r#"{"sessionId":"agent-2"}"#)),
        ClientCall::Rpc {
            method: "_vendor/a".to_owned(),
            params: raw("{}"),
            notify: false,
        },
    ]
}
