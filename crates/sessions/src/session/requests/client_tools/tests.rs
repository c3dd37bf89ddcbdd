//! Tables of inputs and effects of the clients that serve files and terminals.

use std::time::Duration;

use futures_util::FutureExt as _;

use super::*;

struct Fixture {
    part: ToolClients,
    base: Instant,
}

impl Fixture {
    fn new() -> Self {
        Self {
            part: ToolClients::default(),
            base: Instant::now(),
        }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.base + Duration::from_secs(seconds)
    }

    /// The name of the client that serves a request, otherwise the route.
    fn route(&self, kind: RequestKind, terminal: Option<&str>, second: u64) -> String {
        match self.part.route(kind, terminal, self.at(second)) {
            Route::Policy => "policy".to_owned(),
            Route::Client(client) => client.name.to_string(),
            Route::Disconnected => "disconnected".to_owned(),
        }
    }
}

const ALL: ClientTools = ClientTools {
    read: true,
    write: true,
    terminals: true,
};

fn client(name: &str, serves: ClientTools) -> (Arc<ToolClient>, watch::Sender<Presence>) {
    let (sender, presence) = watch::channel(Presence::Connected);
    (
        Arc::new(ToolClient {
            name: name.into(),
            serves,
            only_session_folders: false,
            presence,
        }),
        sender,
    )
}

#[test]
fn client_serves_only_the_methods_that_it_supports() {
    let mut fixture = Fixture::new();
    let kinds = [
        RequestKind::ReadFile,
        RequestKind::WriteFile,
        RequestKind::CreateTerminal,
    ];
    let none = ClientTools::default();
    // (methods of the client, sides of a read, a write and a new terminal)
    for (serves, expected) in [
        (none, ["policy", "policy", "policy"]),
        (
            ClientTools { read: true, ..none },
            ["a", "policy", "policy"],
        ),
        (
            ClientTools {
                write: true,
                ..none
            },
            ["policy", "a", "policy"],
        ),
        (
            ClientTools {
                terminals: true,
                ..none
            },
            ["policy", "policy", "a"],
        ),
        (ALL, ["a", "a", "a"]),
    ] {
        let (client, _presence) = client("a", serves);
        fixture.part.turn_began(Some(client));
        assert_eq!(
            kinds.map(|kind| fixture.route(kind, None, 0)),
            expected,
            "{serves:?}"
        );
    }
    for kind in [
        RequestKind::Permission,
        RequestKind::Elicitation,
        RequestKind::Extension,
    ] {
        assert_eq!(fixture.route(kind, None, 0), "policy", "{kind:?}");
    }
}

#[test]
fn latest_turn_decides_which_client_serves() {
    let mut fixture = Fixture::new();
    let (first, _a) = client("a", ALL);
    let (second, _b) = client("b", ALL);
    for (began, expected) in [(Some(first), "a"), (Some(second), "b"), (None, "policy")] {
        fixture.part.turn_began(began);
        assert_eq!(fixture.route(RequestKind::ReadFile, None, 0), expected);
    }
}

#[test]
fn policy_applies_after_the_client_has_disconnected() {
    let mut fixture = Fixture::new();
    let (client, presence) = client("a", ALL);
    fixture.part.turn_began(Some(client));
    // (state of the client, second, side)
    for (state, second, expected) in [
        (Presence::Connected, 0, "a"),
        (Presence::Until(fixture.at(10)), 9, "a"),
        (Presence::Until(fixture.at(10)), 10, "policy"),
        (Presence::Connected, 11, "a"),
    ] {
        presence.send_replace(state);
        assert_eq!(
            fixture.route(RequestKind::ReadFile, None, second),
            expected,
            "{state:?} {second}"
        );
    }
}

#[test]
fn terminal_stays_at_the_client_that_runs_it() {
    let mut fixture = Fixture::new();
    let (first, presence) = client("a", ALL);
    let (second, _b) = client("b", ALL);
    assert!(
        fixture
            .part
            .terminal_created("1".to_owned(), Arc::clone(&first))
    );
    assert!(
        !fixture
            .part
            .terminal_created("1".to_owned(), Arc::clone(&second)),
        "the id is in use"
    );
    assert_eq!(fixture.part.terminal_count(), 1);
    for began in [Some(second), None] {
        fixture.part.turn_began(began);
        for kind in [
            RequestKind::TerminalOutput,
            RequestKind::WaitForExit,
            RequestKind::EndTerminal,
        ] {
            assert_eq!(fixture.route(kind, Some("1"), 0), "a", "{kind:?}");
            assert_eq!(fixture.route(kind, Some("t1"), 0), "policy", "{kind:?}");
        }
    }
    presence.send_replace(Presence::Until(fixture.at(1)));
    assert_eq!(
        fixture.route(RequestKind::TerminalOutput, Some("1"), 1),
        "disconnected"
    );
    fixture.part.terminal_released("1");
    assert_eq!(
        fixture.route(RequestKind::TerminalOutput, Some("1"), 1),
        "policy"
    );
}

#[test]
fn release_of_the_process_forgets_the_terminals() {
    let mut fixture = Fixture::new();
    let (client, _presence) = client("a", ALL);
    fixture.part.turn_began(Some(Arc::clone(&client)));
    assert!(fixture.part.terminal_created("1".to_owned(), client));
    fixture.part.process_released();
    assert_eq!(fixture.route(RequestKind::ReadFile, None, 0), "a");
    assert_eq!(
        fixture.route(RequestKind::TerminalOutput, Some("1"), 0),
        "policy"
    );
}

#[test]
fn open_request_ends_when_its_client_has_disconnected() {
    let mut fixture = Fixture::new();
    let (first, presence) = client("a", ALL);
    let (second, _b) = client("b", ALL);
    let ids = [RequestId::new(1), RequestId::new(2)];
    fixture.part.offered(ids[0], first);
    fixture.part.offered(ids[1], second);
    assert_eq!(
        (
            fixture.part.deadline(),
            fixture.part.disconnected(fixture.at(99))
        ),
        (None, None)
    );
    // (state of the first client, deadline in seconds, (second, request that ends))
    for (state, deadline, ends) in [
        (
            Presence::Until(fixture.at(10)),
            Some(10),
            [(9, None), (10, Some(ids[0]))],
        ),
        (Presence::Connected, None, [(9, None), (99, None)]),
        (
            Presence::Until(fixture.at(20)),
            Some(20),
            [(19, None), (20, Some(ids[0]))],
        ),
    ] {
        presence.send_replace(state);
        let changed = fixture.part.presence_changed().now_or_never();
        assert!(changed.is_some(), "{state:?}");
        fixture.part.note_presence();
        assert!(
            fixture.part.presence_changed().now_or_never().is_none(),
            "{state:?}"
        );
        assert_eq!(
            fixture.part.deadline(),
            deadline.map(|at| fixture.at(at)),
            "{state:?}"
        );
        for (second, expected) in ends {
            assert_eq!(
                fixture.part.disconnected(fixture.at(second)),
                expected,
                "{state:?} {second}"
            );
        }
    }
    assert_eq!(
        fixture
            .part
            .resolved(ids[0])
            .map(|client| client.name.clone())
            .as_deref(),
        Some("a")
    );
    assert!(fixture.part.resolved(ids[0]).is_none());
    assert_eq!(
        (
            fixture.part.deadline(),
            fixture.part.disconnected(fixture.at(99))
        ),
        (None, None)
    );
}
