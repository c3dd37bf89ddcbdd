//! A gateway of the build before the current store format is killed under load, and this build takes over its folder. The part
//! `upgrade` of `scripts/test` builds the previous gateway.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::key_life::by;
use crate::scale::cycles::{End, Figures, World};
use crate::store::LOG;
use crate::store::migration::{copy_of, format_of, run};
use crate::support::gateway::KEY;
use crate::support::history::{Frame, Reader};
use crate::support::places::{fake_agent, gateway_program};
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Answer, Gateway, History, Random, figure};

/// Names the previous gateway.
const PREVIOUS: &str = "ACP_GATEWAY_TEST_PREVIOUS";
const PREVIOUS_FORMAT: i32 = 6;
/// How much clients see from each build, and for how long at most.
const EVENTS: u64 = 10_000;
const LIFE: Duration = Duration::from_secs(30);
/// The turns of `owner` with each build, whose ends a webhook receives.
const OWNER_TURNS: usize = 20;
/// The interval between two uploads.
const UPLOAD: Duration = Duration::from_millis(20);

#[expect(
    clippy::disallowed_methods,
    reason = "a run of the tests selects the build"
)]
fn previous() -> PathBuf {
    let program = std::env::var_os(PREVIOUS);
    program
        .expect("scripts/test upgrade builds the previous gateway")
        .into()
}

/// Writes files into the folders of sessions until the gateway has ended, or until the sender is dropped. Returns the number of
/// files that the gateway acknowledged.
#[expect(
    clippy::disallowed_methods,
    reason = "the test's own task, which the test waits for"
)]
fn upload(
    gateway: &Gateway,
    sessions: &[String],
    mut stopped: oneshot::Receiver<()>,
) -> JoinHandle<usize> {
    let urls: Vec<String> = sessions
        .iter()
        .map(|session| format!("{}/v1/sessions/{session}/files", gateway.url))
        .collect();
    let http = gateway.http.clone();
    let key = gateway.key.clone();
    tokio::spawn(async move {
        let mut pace = tokio::time::interval(UPLOAD);
        let mut number = 0;
        loop {
            tokio::select! {
                _ = pace.tick() => {}
                _ = &mut stopped => return number,
            }
            let url = format!("{}/upload-{number}", urls[number % urls.len()]);
            let request = http.put(url).bearer_auth(&key).body(number.to_string());
            match request.send().await {
                Ok(response) => assert_eq!(response.status(), StatusCode::CREATED),
                Err(_) => return number,
            }
            number += 1;
        }
    })
}

/// A request with the key of the configuration.
async fn owner(gateway: &Gateway, method: Method, path: &str, body: Option<&Value>) -> Value {
    let request = by(gateway, KEY, method, path).header("prefer", "wait=60");
    let answer = Answer::of(match body {
        Some(body) => request.json(body),
        None => request,
    });
    let answer = answer.await;
    assert!(answer.status.is_success(), "{path}: {answer:?}");
    answer.body
}

/// `build`: a name for the prompts, which must differ.
async fn turns_of_owner(gateway: &Gateway, session: &str, build: &str) {
    let path = format!("/v1/sessions/{session}/prompts");
    for number in 0..OWNER_TURNS {
        let prompt = json!({ "prompt": format!("echo {build} {number}") });
        let turn = owner(gateway, Method::POST, &path, Some(&prompt)).await;
        assert_eq!(turn["status"], "completed", "{turn}");
    }
}

async fn task(gateway: &Gateway, description: &str) -> String {
    let task = json!({ "agent": "single", "description": description });
    let (status, task) = gateway.post("/v1/tasks", &task).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{task}");
    task["taskId"].as_str().expect("an id").to_owned()
}

async fn until_task(gateway: &Gateway, task: &str, status: &str) -> Value {
    eventually(status, LONGEST, || async {
        let task = gateway.get(&format!("/v1/tasks/{task}")).await;
        (task["status"] == status).then_some(task)
    })
    .await
}

/// The number of deliveries about a session of `owner`.
async fn deliveries(gateway: &Gateway, session: &str) -> usize {
    let mut count = 0;
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/webhooks/deliveries?limit=100{cursor}");
        let page = owner(gateway, Method::GET, &path, None).await;
        let deliveries = page["deliveries"].as_array().expect("a list");
        let fits = |delivery: &&Value| delivery["sessionId"] == session;
        count += deliveries.iter().filter(fits).count();
        let Some(next) = page["nextCursor"].as_str() else {
            return count;
        };
        cursor = format!("&cursor={next}");
    }
}

/// An event without its id, which contains the epoch of the log.
fn without_id(text: &str) -> Value {
    let mut event: Value = serde_json::from_str(text).expect("JSON");
    let id = event.as_object_mut().expect("an object").remove("id");
    assert!(id.is_some(), "{event}");
    event
}

/// The events that a client saw from the previous gateway.
fn seen_before(reader: &Reader) -> Vec<Value> {
    let frames = reader.frames.iter().skip(1);
    let frames = frames.take_while(|frame| !matches!(frame, Frame::Connected { .. }));
    let events = frames.filter_map(|frame| match frame {
        Frame::Event { text, .. } => Some(without_id(text)),
        _ => None,
    });
    events.collect()
}

/// The events of each session that clients received from the previous gateway.
fn seen_by_session(history: &History) -> BTreeMap<String, Vec<Value>> {
    let readers = history.readers.iter().filter(|reader| !reader.all);
    let seen = readers.map(|reader| {
        let session = reader.sessions.keys().next().expect("it reads one session");
        (session.clone(), seen_before(reader))
    });
    seen.collect()
}

/// The previous build rejects the folder, and continues with the copy that the migration has made.
async fn return_to_the_previous_build(gateway: &mut Gateway, copy: &Path, history: &History) {
    let log = gateway.path(LOG);
    let migrated = std::fs::read(&log).expect("the log");
    gateway.program = previous();
    assert_eq!(gateway.try_start(), Err(Some(1)));
    let text = gateway.log();
    let reason = format!("has format {}, and this version reads", PREVIOUS_FORMAT + 1);
    assert!(text.contains(&reason), "{text}");
    assert!(std::fs::read(&log).expect("the log") == migrated);

    let copy = copy.to_str().expect("UTF-8");
    let (is_restored, text) = run(gateway, &["restore", copy]);
    assert!(is_restored, "{text}");
    gateway.start();
    let mut count = 0;
    for (session, seen) in seen_by_session(history) {
        let kept = gateway.log_texts(&session, 0).await;
        let kept: Vec<Value> = kept.iter().map(|text| without_id(text)).collect();
        assert!(kept.starts_with(&seen), "{session}");
        count += seen.len();
    }
    figure(&format!("{count} events before the kill"));
    assert!(count > 0);

    let session = history.logs.keys().next().expect("there are sessions");
    // This build has deleted the session with its folder.
    let cwd = gateway.get_session(session).await["cwd"].clone();
    std::fs::create_dir_all(cwd.as_str().expect("a path")).expect("the folder is ours");
    let turn = gateway.turn(session, "echo two").await;
    assert_eq!(turn["status"], "completed", "{turn}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn gateway_of_the_previous_format_is_killed_under_load_and_this_build_continues() {
    let (seed, mut random) = Random::seeded();
    figure(&format!("SEED={seed}"));
    let mut figures = Figures::new();
    let single = "pool = { max_size = 1, min_idle = 0 }\n";
    let mut world = World::new(|setup| {
        setup
            .program(previous())
            .agent("single", fake_agent(), &[], single)
            // The agent of `owner`, whose prompts are not in the history.
            .agent("beside", fake_agent(), &[], "")
            .settings("webhooks.allowed_hosts = [\"localhost\"]")
    });
    let webhook = json!({ "url": "https://localhost:1/", "events": ["prompt.completed"] });
    owner(&world.gateway, Method::POST, "/v1/webhooks", Some(&webhook)).await;
    let session = json!({ "agent": "beside" });
    let own = owner(&world.gateway, Method::POST, "/v1/sessions", Some(&session)).await;
    let own = own["sessionId"].as_str().expect("an id").to_owned();
    turns_of_owner(&world.gateway, &own, "previous").await;
    // The migration renames the user of the key of the configuration, and repeated requests count for each user.
    let words = ["key", "create", "alice", "--scopes", "admin"];
    let (is_created, key) = run(&world.gateway, &words);
    assert!(is_created, "{key}");
    world.gateway.key = key.trim_end().to_owned();
    eventually("the gateway has read its keys again", LONGEST, || async {
        let answer = Answer::of(world.gateway.request(Method::GET, "/v1")).await;
        (answer.status == StatusCode::OK).then_some(())
    })
    .await;
    let running = task(&world.gateway, "hang").await;
    until_task(&world.gateway, &running, "running").await;
    let queued = task(&world.gateway, "echo after").await;
    let window = world.open(&mut random, false).await;
    let sessions = window.sessions.clone();
    let (stop, stopped) = oneshot::channel();
    let uploads = upload(&world.gateway, &sessions, stopped);
    window.shows(EVENTS, LIFE).await;

    world.gateway.program = gateway_program().into();
    world.cycle(End::Kill, &mut random, &mut figures);
    drop(stop);
    let uploaded = uploads
        .await
        .expect("each upload before the kill succeeded");
    let copy = copy_of(PREVIOUS_FORMAT, &world.gateway.path(LOG));
    assert!(world.gateway.log().contains("migrated the log"));
    assert_eq!(format_of(&copy), PREVIOUS_FORMAT);
    for number in 0..uploaded {
        let session = &sessions[number % sessions.len()];
        let path = format!("/v1/sessions/{session}/files/upload-{number}");
        let file = world.gateway.request(Method::GET, &path).send().await;
        let text = file.expect("an answer").text().await.expect("a text");
        assert_eq!(text, number.to_string(), "{session}");
    }
    until_task(&world.gateway, &running, "interrupted").await;
    let after = until_task(&world.gateway, &queued, "completed").await;
    assert_eq!(after["result"]["output"], "after", "{after}");
    window.shows(EVENTS, LIFE).await;
    let history = world.close(window, &mut figures).await;
    history.assert_holds();
    turns_of_owner(&world.gateway, &own, "this").await;
    eventually("each turn of `owner` has one delivery", LONGEST, || async {
        let found = deliveries(&world.gateway, &own).await;
        (found == 2 * OWNER_TURNS).then_some(())
    })
    .await;
    figure(&format!("{uploaded} uploads\n{}", figures.summary()));
    assert!(figures.interrupted > 0, "no turn ran during the kill");
    let session = world.gateway.session("fake").await;
    let turn = world.gateway.turn(&session, "echo one").await;
    assert_eq!(turn["status"], "completed", "{turn}");
    assert_eq!(world.gateway.stop(), Some(0));
    return_to_the_previous_build(&mut world.gateway, &copy, &history).await;
}
