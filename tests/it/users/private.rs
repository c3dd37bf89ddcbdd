//! Lists, streams, tasks, webhooks, states and broadcasts have only what belongs to the caller.

use std::collections::BTreeSet;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{LIMITS, User, sorted};
use crate::broadcasts::{Log, PATH, reached, reasons};
use crate::route_walk::operations::{Needs, UNKNOWN, operations};
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Answer, Setup};

/// The host does not exist, so deliveries stay pending.
const WEBHOOKS: &str = "webhooks.allowed_hosts = [\"hooks.example\"]";

/// The queries of the list that select the sessions of the test.
const QUERIES: [&str; 12] = [
    "",
    "&order=created",
    "&order=updated",
    "&agent=fake",
    "&agent=fake&order=created",
    "&state=idle",
    "&cwd=FOLDER",
    "&metadata.team=roof",
    "&metadata.team=roof&order=created",
    "&q=harbor",
    "&q=harbor&order=created",
    "&tasks=true",
];

#[tokio::test]
async fn list_of_sessions_has_only_own_ones_in_every_order_and_with_every_filter() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let folder = gateway.path("data/workspaces/project");
    std::fs::create_dir(&folder).expect("the root is ours");
    let folder = folder.canonicalize().expect("it is there");
    let folder = folder.to_str().expect("UTF-8");
    // The text of one user is the beginning of another one.
    let users = [
        User::new(&gateway, "bob").await,
        User::new(&gateway, "bob.2").await,
        User::new(&gateway, "alice").await,
        User::with(
            &gateway,
            &["elsewhere", "--tenant", "other", "--user", "bob"],
        )
        .await,
        User::with(&gateway, &["mine", "--user", "owner"]).await,
    ];
    let mut own = vec![Vec::new(); users.len()];
    // The sessions of the users alternate in both orders.
    for count in 1..=2 {
        for (user, own) in users.iter().zip(&mut own) {
            let body = json!({
                "agent": "fake", "cwd": folder, "title": format!("Harbor {count}"),
                "metadata": { "team": "roof" },
            });
            own.push(user.created("/v1/sessions", &body, "sessionId").await);
        }
    }
    for query in QUERIES {
        let query = query.replace("FOLDER", folder);
        for (user, own) in users.iter().zip(&own) {
            let listed = user.sessions(&query).await;
            assert_eq!(sorted(listed), *own, "{query}");
        }
    }
    // The id of another session is no text of the own ones.
    for (at, user) in users.iter().enumerate() {
        for (other, theirs) in own.iter().enumerate() {
            let found = user.sessions(&format!("&q={}", theirs[0])).await;
            assert_eq!(found.is_empty(), at != other, "{found:?}");
        }
    }
}

#[tokio::test]
async fn cursor_of_another_user_is_no_cursor() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let users = [
        User::new(&gateway, "alice").await,
        User::new(&gateway, "bob").await,
    ];
    for user in &users {
        for _ in 0..2 {
            let body = json!({ "agent": "fake", "metadata": { "team": "roof" } });
            user.created("/v1/sessions", &body, "sessionId").await;
        }
    }
    let [alice, bob] = &users;
    for query in [
        "order=updated",
        "order=created",
        "agent=fake",
        "metadata.team=roof",
        "metadata.team=roof&order=created",
    ] {
        let path = format!("/v1/sessions?limit=1&{query}");
        let first = bob.get(&path).await;
        let cursor = first["nextCursor"].as_str().expect("two sessions");
        let ask = async |cursor: &str| {
            let path = format!("{path}&cursor={cursor}");
            let answer = alice.call(Method::GET, &path).await;
            let mut problem = answer.problem(422, "invalid");
            problem["instance"] = Value::Null;
            problem
        };
        assert_eq!(ask(cursor).await, ask("none").await, "{query}");
        bob.get(&format!("{path}&cursor={cursor}")).await;
    }
}

#[tokio::test]
async fn closing_and_deleting_by_a_filter_ends_only_own_sessions() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let theirs = bob.session().await;
    for query in ["agent=fake", "state=idle"] {
        let own = alice.session().await;
        let path = format!("/v1/sessions/close?{query}");
        let closed = alice.call(Method::POST, &path).await;
        assert_eq!(closed.status, StatusCode::OK, "{closed:?}");
        assert!(!closed.body.to_string().contains(&theirs), "{closed:?}");
        assert_eq!(alice.snapshot(&own).await["state"], "closed");
        assert_eq!(bob.snapshot(&theirs).await["state"], "idle", "{query}");
    }
    let deleted = alice
        .call(Method::DELETE, "/v1/sessions?agent=fake&state=closed")
        .await;
    assert_eq!(deleted.status, StatusCode::OK, "{deleted:?}");
    let deleted = alice.call(Method::DELETE, "/v1/sessions?agent=fake").await;
    assert_eq!(deleted.status, StatusCode::OK, "{deleted:?}");
    assert_eq!(alice.sessions("").await, [""; 0]);
    assert_eq!(bob.sessions("").await, [&*theirs]);
    bob.turn(&theirs, "echo it is there").await;
}

#[tokio::test]
async fn streams_of_all_sessions_have_only_events_of_the_caller() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let start = alice.get("/v1/events?after=tail").await;
    let start = start["lastEventId"].as_str().expect("a position");
    let before = bob.session().await;
    let mut all = alice
        .stream(&format!("/v1/events/stream?after={start}"))
        .await;
    let mut tail = alice.stream("/v1/events/stream").await;
    let mut summaries = alice.stream("/v1/events/stream?summaries=true").await;
    for stream in [&mut tail, &mut summaries] {
        stream.until("ready").await;
    }
    let theirs = bob.session().await;
    bob.turn(&theirs, "stream n=3").await;
    let own = alice.session().await;
    alice.turn(&own, "echo hello").await;
    for stream in [&mut all, &mut tail] {
        let events = stream.until("prompt.completed").await;
        let of_sessions = events
            .iter()
            .filter(|event| event.data["sessionId"].is_string());
        let sessions: BTreeSet<_> = of_sessions
            .map(|event| event.data["sessionId"].as_str().expect("an id"))
            .collect();
        assert_eq!(sessions, BTreeSet::from([&*own]), "{events:?}");
    }
    let events = summaries.until("session.summary").await;
    assert!(
        events
            .iter()
            .all(|event| !event.text.contains(&theirs) && !event.text.contains(&before)),
        "{events:?}"
    );
    assert_eq!(events.last().expect("one").data["sessionId"], own);

    // Pages, and the types of events as a filter.
    for query in ["", "&types=session.created"] {
        let path = format!("/v1/events?after={start}&limit=1000{query}");
        let page = alice.get(&path).await;
        let events = page["events"].as_array().expect("events");
        assert!(!events.is_empty(), "{page}");
        assert!(
            events.iter().all(|event| event["sessionId"] == own),
            "{page}"
        );
    }
    // Positions in the log of another user are not those of a session.
    let last = bob.get(&format!("/v1/events?after={start}&limit=1")).await;
    let last = last["lastEventId"].as_str().expect("a position");
    let page = alice.get(&format!("/v1/events?after={last}")).await;
    let events = page["events"].as_array().expect("events");
    assert!(
        events.iter().all(|event| event["sessionId"] == own),
        "{page}"
    );
}

#[tokio::test]
async fn own_session_beside_a_foreign_one_opens_no_stream() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let own = alice.session().await;
    let theirs = bob.session().await;
    for route in ["/v1/events", "/v1/events/stream"] {
        let ask = async |other: &str| {
            let request = |path: &str| alice.request(Method::GET, path);
            for order in [[&*own, other], [other, &*own]] {
                let [one, two] = order;
                let path = format!("{route}?session={one}&session={two}");
                let answer = Answer::of(request(&path)).await;
                answer.problem(404, "not_found");
            }
            let path = format!("{route}?session={own}&session={other}");
            super::comparable(request(&path), other).await
        };
        assert_eq!(ask(&theirs).await, ask(UNKNOWN).await, "{route}");
    }
}

#[tokio::test]
async fn tasks_and_their_sessions_belong_to_the_user() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let task = json!({ "agent": "fake", "description": "echo done" });
    let mut own = Vec::new();
    let mut theirs = Vec::new();
    for _ in 0..2 {
        own.push(alice.created("/v1/tasks", &task, "taskId").await);
        theirs.push(bob.created("/v1/tasks", &task, "taskId").await);
    }
    for (user, tasks) in [(&alice, &own), (&bob, &theirs)] {
        eventually("the tasks have ended", LONGEST, || async {
            let ended = user.get("/v1/tasks?status=completed").await;
            (ended["tasks"].as_array()?.len() == tasks.len()).then_some(())
        })
        .await;
    }
    for query in ["", "&agent=fake", "&status=completed"] {
        for (user, tasks) in [(&alice, &own), (&bob, &theirs)] {
            let path = format!("/v1/tasks?limit=1{query}");
            let listed = user.entries(&path, "tasks", "taskId").await;
            assert_eq!(sorted(listed), *tasks, "{query}");
        }
    }
    let with_tasks = alice.get("/v1/sessions?tasks=true").await;
    let sessions = with_tasks["sessions"].as_array().expect("a list");
    let of: BTreeSet<_> = sessions
        .iter()
        .map(|session| session["taskId"].as_str().expect("a task").to_owned())
        .collect();
    assert_eq!(of, own.iter().cloned().collect(), "{with_tasks}");
    // A page after a task of another user has no task of this user either.
    let first = bob.get("/v1/tasks?limit=1").await;
    let cursor = first["nextCursor"].as_str().expect("two tasks");
    let path = format!("/v1/tasks?cursor={cursor}");
    let page = alice.call(Method::GET, &path).await.body.to_string();
    assert!(theirs.iter().all(|task| !page.contains(task)), "{page}");
}

#[tokio::test]
async fn webhooks_get_only_the_events_of_their_user() {
    let gateway = Setup::fake(&[]).settings(LIMITS).settings(WEBHOOKS).start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let hook = json!({ "url": "https://hooks.example/", "events": ["prompt.completed"] });
    let mut ids = Vec::new();
    let mut sessions = Vec::new();
    for user in [&alice, &bob] {
        ids.push(user.created("/v1/webhooks", &hook, "webhookId").await);
        sessions.push(user.session().await);
    }
    // The gateway reads the events in their order: the turn of bob is before the second one of alice.
    for (user, session) in [(0, 0), (1, 1), (0, 0)] {
        let user = [&alice, &bob][user];
        user.turn(&sessions[session], "echo hello").await;
    }
    for (at, (user, turns)) in [(&alice, 2), (&bob, 1)].into_iter().enumerate() {
        let listed = user.entries("/v1/webhooks?limit=1", "webhooks", "webhookId");
        assert_eq!(listed.await, [&*ids[at]]);
        let path = "/v1/webhooks/deliveries?limit=200";
        let deliveries = eventually("the deliveries", LONGEST, || async {
            let page = user.get(path).await;
            let deliveries = page["deliveries"].as_array().expect("a list").clone();
            (deliveries.len() >= turns).then_some(deliveries)
        })
        .await;
        assert_eq!(deliveries.len(), turns, "{deliveries:?}");
        assert!(
            deliveries
                .iter()
                .all(|one| one["webhookId"] == *ids[at] && one["sessionId"] == *sessions[at]),
            "{deliveries:?}"
        );
    }
    // A receiver of one user cannot accept forged deliveries of another one.
    let secret = async |user: &User<'_>| user.get("/v1/webhooks/secret").await["secret"].clone();
    let again = User::with(&gateway, &["alice-2", "--user", "alice"]).await;
    assert_ne!(secret(&alice).await, secret(&bob).await);
    assert_eq!(secret(&alice).await, secret(&again).await);
}

/// Documents of the gateway as a whole, for its operator.
const OF_THE_OPERATOR: [&str; 3] = ["/metrics", "/v1/audit", "/v1/diagnostics"];

#[tokio::test]
async fn no_document_names_a_session_of_another_user() {
    let gateway = Setup::fake(&["--state", "state"])
        .settings(LIMITS)
        .settings(WEBHOOKS)
        .start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let own = alice.session().await;
    let theirs = bob.session().await;
    let path = format!("/v1/sessions/{theirs}");
    let renamed = bob.request(Method::PATCH, &path);
    let renamed = Answer::of(renamed.json(&json!({ "title": "Lantern" }))).await;
    assert_eq!(renamed.status, StatusCode::OK);
    bob.turn(&theirs, "echo lantern").await;
    let hang = json!({ "prompt": "hang" });
    bob.post(&format!("{path}/prompts"), &hang).await;
    alice
        .post(&format!("/v1/sessions/{own}/prompts"), &hang)
        .await;
    let mut read = 0;
    for operation in operations() {
        let path = operation.path.replace("nobody", "fake");
        let reads = operation.method == Method::GET && operation.needs != Needs::Nothing;
        let is_stream = path.ends_with("/stream") || path.ends_with("/connect");
        if !reads || is_stream || OF_THE_OPERATOR.contains(&&*path) {
            continue;
        }
        let answer = alice.request(Method::GET, &path).send().await;
        let answer = answer.expect("an answer");
        read += usize::from(answer.status() == StatusCode::OK);
        let text = answer.text().await.expect("a body");
        let text = text.to_lowercase();
        assert!(
            !text.contains(&theirs) && !text.contains("lantern"),
            "{path}: {text}"
        );
    }
    assert!(read > 12, "{read}");
    for (user, own, theirs) in [(&alice, &own, &theirs), (&bob, &theirs, &own)] {
        let processes = user.get("/v1/agents/fake/status").await["processes"].clone();
        let text = processes.to_string();
        assert!(text.contains(own) && !text.contains(theirs), "{text}");
    }
}

#[tokio::test]
async fn sessions_of_the_agent_are_listed_and_adopted_only_by_their_user() {
    let gateway = Setup::fake(&["--state", "state", "--list"])
        .settings(LIMITS)
        .start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let folder = gateway.path("data/workspaces/project");
    std::fs::create_dir(&folder).expect("the root is ours");
    let body = json!({ "agent": "fake", "cwd": "project" });
    let theirs = bob.created("/v1/sessions", &body, "sessionId").await;
    let snapshot = bob.snapshot(&theirs).await;
    bob.turn(&theirs, "echo hello").await;
    let listed = bob.get("/v1/agents/fake/sessions").await;
    let [of_agent] = &listed["sessions"].as_array().expect("a list")[..] else {
        panic!("{listed}");
    };
    let id = of_agent["agentSessionId"].as_str().expect("an id");
    let others = alice.get("/v1/agents/fake/sessions").await;
    assert_eq!(others["sessions"], json!([]), "{others}");
    let body = json!({ "agent": "fake", "agentSessionId": id, "cwd": snapshot["cwd"] });
    let refused = alice.post("/v1/sessions", &body).await;
    let problem = refused.problem(422, "invalid");
    assert!(!problem.to_string().contains(&theirs), "{problem}");
    assert_eq!(alice.sessions("").await, [""; 0]);
}

#[tokio::test]
async fn broadcast_reaches_only_own_sessions_and_their_processes() {
    let log = Log::new();
    let gateway = Setup::fake(&["--log", log.path()]).settings(LIMITS).start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let own = alice.session().await;
    let theirs = bob.session().await;
    let send = async |to: Value, form: &str| {
        let body = json!({ "type": "announcement", "content": "hello", "to": to, "as": form });
        let answer = alice.post(PATH, &body).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        answer.body
    };
    for form in ["notification", "prompt"] {
        for to in [
            json!("all"),
            json!({ "agents": ["fake"], "sessions": [own] }),
        ] {
            let report = send(to, form).await;
            let text = report.to_string();
            assert!(text.contains(&own) && !text.contains(&theirs), "{report}");
        }
        // One broadcast with both ids: a user may send six in a minute.
        let report = send(json!({ "sessions": [theirs, UNKNOWN] }), form).await;
        assert_eq!(reached(&report).len(), 0, "{report}");
        assert_eq!(reasons(&report), ["unknown", "unknown"], "{report}");
        let [first, second] = [&theirs, UNKNOWN].map(|id| {
            let items = report["notReached"].as_array().expect("a list").iter();
            let mut texts = items.map(Value::to_string).filter(|text| text.contains(id));
            texts.next().expect("an item").replace(id, "ID")
        });
        assert_eq!(first, second, "{report}");
    }
    bob.turn(&theirs, "echo the lines before were read").await;
    let prompts = bob.get(&format!("/v1/sessions/{theirs}/prompts")).await;
    assert_eq!(
        prompts["prompts"].as_array().expect("a list").len(),
        1,
        "{prompts}"
    );
    assert_eq!(log.broadcasts().len(), 2, "both to the process of alice");
}

#[tokio::test]
async fn idempotency_keys_of_users_are_independent() {
    let gateway = Setup::fake(&[]).settings(LIMITS).settings(WEBHOOKS).start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    for (path, body, id) in [
        ("/v1/sessions", json!({ "agent": "fake" }), "/sessionId"),
        (
            "/v1/tasks",
            json!({ "agent": "fake", "description": "echo x" }),
            "/taskId",
        ),
        (
            PATH,
            json!({ "type": "announcement", "content": "hello", "to": "all" }),
            "/id",
        ),
        (
            "/v1/webhooks",
            json!({ "url": "https://hooks.example/", "events": ["prompt.completed"] }),
            "/webhookId",
        ),
    ] {
        let send = async |user: &User<'_>, replayed: Option<&str>| {
            let request = user.request(Method::POST, path);
            let request = request.header("idempotency-key", "once").json(&body);
            let answer = Answer::of(request).await;
            assert!(answer.status.is_success(), "{path}: {answer:?}");
            assert_eq!(answer.header("idempotency-replayed"), replayed, "{path}");
            let id = answer.body.pointer(id).and_then(Value::as_str);
            id.expect("an id").to_owned()
        };
        let own = send(&alice, None).await;
        let theirs = send(&bob, None).await;
        assert_ne!(own, theirs, "{path}");
        assert_eq!(send(&alice, Some("true")).await, own, "{path}");
        assert_eq!(send(&bob, Some("true")).await, theirs, "{path}");
    }
    // The same key with another body is a conflict only for the user that has used the key.
    let other = json!({ "agent": "fake", "title": "Other" });
    let carol = User::new(&gateway, "carol").await;
    let create = |user: &User<'_>| {
        let request = user.request(Method::POST, "/v1/sessions");
        Answer::of(request.header("idempotency-key", "once").json(&other))
    };
    create(&alice).await.problem(422, "idempotency_mismatch");
    assert_eq!(create(&carol).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn limits_count_for_each_user() {
    let settings = "limits.per_key.max_live_sessions = 1\nlimits.per_key.max_streams = 1";
    let gateway = Setup::fake(&[]).settings(settings).start();
    let alice = User::new(&gateway, "alice").await;
    let again = User::with(&gateway, &["phone", "--user", "alice"]).await;
    let bob = User::new(&gateway, "bob").await;
    let mut streams = Vec::new();
    for user in [&alice, &bob] {
        let session = user.session().await;
        let path = format!("/v1/sessions/{session}/prompts");
        let prompt = user.post(&path, &json!({ "prompt": "hang" })).await;
        assert_eq!(prompt.status, StatusCode::ACCEPTED, "{prompt:?}");
        let mut stream = user.stream("/v1/events/stream").await;
        stream.until("ready").await;
        streams.push(stream);
    }
    // A temporary rejection of a stream is a stream too.
    let refused = again.stream("/v1/events/stream").await.rest().await;
    let [refused] = &refused[..] else {
        panic!("{refused:?}");
    };
    assert_eq!(refused.data["problem"]["code"], "rate_limited");
    let more = again
        .post("/v1/sessions", &json!({ "agent": "fake" }))
        .await;
    more.problem(429, "rate_limited");
    drop(streams);
}
