//! A full disk: new data is rejected, existing data is readable, and pending data is kept.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::disk::ENOSPC;
use super::{LIMITS, on_disk};
use crate::support::history::PromptAnswer;
use crate::support::log::agent_text;
use crate::support::{Answer, Follower, Gateway, History, Setup, eventually};

const TURN: &str = "slow chunks=150 ms=10";

async fn post(gateway: &Gateway, session: &str, key: &str) -> Answer {
    let path = format!("/v1/sessions/{session}/prompts");
    let body = json!({ "prompt": "echo later" });
    gateway
        .posted(
            &path,
            &[("Idempotency-Key", key), ("Prefer", "wait=30")],
            &body,
        )
        .await
}

fn is_chunk(event: &Value) -> bool {
    event["type"] == "session.update"
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_rejects_new_data_and_keeps_existing_data() {
    let journals = tempfile::tempdir().expect("a temporary folder");
    let flags = ["--journal", journals.path().to_str().expect("UTF-8")];
    let (mut gateway, disk) = on_disk(Setup::fake(&flags).settings(LIMITS));
    let busy = gateway.session("fake").await;
    let idle = gateway.session("fake").await;
    gateway.turn(&idle, "echo before").await;
    let transcript = format!("/v1/sessions/{idle}/transcript");
    let before = gateway.get(&transcript).await["turns"].clone();
    let mut followers = [
        Follower::start(&gateway, &busy),
        Follower::start(&gateway, &idle),
    ];
    gateway.prompt(&busy, TURN).await;
    followers[0].until("the turn has begun", is_chunk).await;

    disk.fail("w", ENOSPC, 1..=u64::MAX);
    let refused = eventually("a prompt is refused", Duration::from_secs(30), || async {
        let answer = if disk.has_failed() {
            Some(post(&gateway, &idle, "again").await)
        } else {
            None
        };
        answer.filter(|answer| answer.status == 507)
    })
    .await;
    refused.problem(507, "storage_full");
    let body = json!({ "agent": "fake" });
    gateway
        .posted("/v1/sessions", &[], &body)
        .await
        .problem(507, "storage_full");
    // Commits in progress have ended by now. Later output of the agent is not visible.
    let page = gateway.all_events(&busy).await;
    let seen = eventually(
        "the stream has all durable events",
        Duration::from_secs(10),
        || async { Some(followers[0].seen().len()).filter(|seen| *seen >= page.len()) },
    )
    .await;
    assert_eq!(
        page,
        followers[0].seen(),
        "exactly the durable events can be read"
    );
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    assert_eq!(gateway.get(&transcript).await["turns"], before);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(
        followers[0].seen().len(),
        seen,
        "nothing is visible before it is durable"
    );
    assert!(
        !followers[0]
            .seen()
            .iter()
            .any(|event| event["type"] == "prompt.completed")
    );

    disk.heal();
    followers[0]
        .until("the end of the turn", |event| {
            event["type"] == "prompt.completed"
        })
        .await;
    let text = agent_text(&followers[0].seen());
    assert!(
        (0..150).all(|n| text.contains(&format!("chunk {n} "))),
        "{text}"
    );
    let again = eventually("the prompt is taken", Duration::from_secs(30), || async {
        Some(post(&gateway, &idle, "again").await).filter(|answer| answer.status != 507)
    })
    .await;
    assert_eq!(
        (again.status.as_u16(), &again.body["text"]),
        (200, &json!("later")),
        "{again:?}"
    );
    let mut history = History::of(&gateway, followers.into())
        .await
        .with_agents(journals.path());
    history.prompts.push(PromptAnswer {
        session: idle.clone(),
        key: Some("again".to_owned()),
        status: 200,
        prompt: again.body["promptId"].as_str().map(str::to_owned),
    });
    history.assert_holds();
    let path = format!("/v1/sessions/{busy}/events?limit=1000");
    let before = Answer::of(gateway.request(Method::GET, &path)).await.body["events"].clone();
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    gateway.start();
    let after = gateway.all_events(&busy).await;
    assert_eq!(
        before.as_array().expect("events")[..],
        after[..before.as_array().map_or(0, Vec::len)]
    );
}

/// Calls that must be answered although the disk is full.
async fn soon(gateway: &Gateway, method: Method, path: &str) -> Answer {
    let calling = gateway.call(method, path);
    let answer = tokio::time::timeout(Duration::from_secs(20), calling).await;
    answer.unwrap_or_else(|_| panic!("{path} hangs: {}", gateway.log()))
}

/// The status of `/readyz`.
async fn ready(gateway: &Gateway) -> u16 {
    let asking = gateway
        .request(Method::GET, "/readyz")
        .timeout(Duration::from_secs(20));
    asking.send().await.expect("it answers").status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_serves_reads_cancels_and_deletes_at_once() {
    let (gateway, disk) = on_disk(Setup::fake(&[]).settings(LIMITS));
    let busy = gateway.session("fake").await;
    let idle = gateway.session("fake").await;
    gateway.turn(&idle, "echo before").await;
    assert_eq!(ready(&gateway).await, 200);
    let mut follower = Follower::start(&gateway, &busy);
    gateway.prompt(&busy, TURN).await;
    follower.until("the turn has begun", is_chunk).await;
    disk.fail("w", ENOSPC, 1..=u64::MAX);
    eventually("a commit has failed", Duration::from_secs(10), || async {
        disk.has_failed().then_some(())
    })
    .await;

    let path = format!("/v1/sessions/{busy}");
    let shown = eventually(
        "the session waits for a commit",
        Duration::from_secs(10),
        || async {
            let shown = soon(&gateway, Method::GET, &path).await;
            assert_eq!(shown.status, 200, "{shown:?}");
            (ready(&gateway).await != 200).then_some(shown)
        },
    )
    .await;
    soon(&gateway, Method::GET, "/readyz")
        .await
        .problem(507, "storage_full");
    assert_eq!(
        (&shown.body["state"], &shown.body["promptId"]),
        (&json!("running"), &json!("p1"))
    );
    let last = gateway
        .all_events(&busy)
        .await
        .last()
        .expect("it has events")["id"]
        .clone();
    assert_eq!(
        soon(&gateway, Method::GET, &path).await.body["lastEventId"],
        last,
        "the last commit"
    );
    for read in [
        "/transcript",
        "/requests",
        "/prompts/p1",
        "/events?limit=1000",
    ] {
        let answer = soon(&gateway, Method::GET, &format!("{path}{read}")).await;
        assert_eq!(answer.status, 200, "{read}: {answer:?}");
    }
    let cancelled = soon(&gateway, Method::POST, &format!("{path}/cancel")).await;
    assert_eq!(
        (cancelled.status.as_u16(), &cancelled.body["promptIds"]),
        (202, &json!(["p1"]))
    );
    let gone = format!("/v1/sessions/{idle}");
    assert_eq!(soon(&gateway, Method::DELETE, &gone).await.status, 202);
    assert_eq!(soon(&gateway, Method::GET, &gone).await.status, 404);
    assert_eq!(soon(&gateway, Method::DELETE, &gone).await.status, 404);

    disk.heal();
    let end = follower
        .until("the end of the turn", |event| {
            event["type"] == "prompt.completed"
        })
        .await;
    assert_eq!(end["stopReason"], "cancelled");
    eventually(
        "the deleted session has left the list",
        Duration::from_secs(10),
        || async {
            (gateway.get("/v1/sessions").await["sessions"]
                .as_array()
                .map(Vec::len)
                == Some(1))
            .then_some(())
        },
    )
    .await;
    assert_eq!(soon(&gateway, Method::GET, &gone).await.status, 404);
    eventually("the gateway is ready", Duration::from_secs(20), || async {
        (ready(&gateway).await == 200).then_some(())
    })
    .await;
    assert_eq!(gateway.turn(&busy, "echo after").await["text"], "after");
    History::of(&gateway, vec![follower]).await.assert_holds();
}

/// Bytes of the files in the folder of the log.
fn disk_use(gateway: &Gateway) -> u64 {
    let files = std::fs::read_dir(gateway.path("data/private")).expect("it is there");
    let files = files.map(|file| file.expect("an entry").metadata().expect("it is there"));
    files
        .filter(std::fs::Metadata::is_file)
        .map(|file| file.len())
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn on_the_disk_reserve_ends_of_turns_cancels_and_deletes_commit() {
    const RESERVE: u64 = 8 << 20;
    let limits = "retention.disk_reserve_bytes = \"8MiB\"\nretention.min_free_disk_percent = 0\nretention.min_free_disk_bytes = 0\n";
    let (gateway, disk) = on_disk(Setup::fake(&[]).settings(&format!("{LIMITS}{limits}")));
    let reserve = gateway.path("data/private/disk-reserve");
    let reserved = || std::fs::metadata(&reserve).map_or(0, |file| file.len());
    assert_eq!(reserved(), RESERVE);
    let hangs = gateway.session("fake").await;
    let floods = gateway.session("fake").await;
    let idle = gateway.session("fake").await;
    gateway.turn(&idle, "echo before").await;
    gateway.prompt(&hangs, "stream n=1 size=8; hang").await;
    gateway.log_until(&hangs, is_chunk).await;
    disk.limit_to(disk_use(&gateway) + (1 << 20));
    gateway.prompt(&floods, "flood n=1000000").await;
    eventually(
        "the reserve is released",
        Duration::from_mins(1),
        || async { (disk.has_failed() && ready(&gateway).await == 507).then_some(()) },
    )
    .await;

    let of = |session: &str, rest: &str| format!("/v1/sessions/{session}{rest}");
    let ended = async |session: &str| {
        let request = gateway.request(Method::GET, &of(session, "/prompts/p1"));
        Answer::of(request.header("Prefer", "wait=20")).await.body["stopReason"].clone()
    };
    assert_eq!(
        soon(&gateway, Method::POST, &of(&hangs, "/cancel"))
            .await
            .status,
        202
    );
    assert_eq!(ended(&hangs).await, "cancelled");
    assert_eq!(
        soon(&gateway, Method::DELETE, &of(&idle, "")).await.status,
        204
    );
    for read in ["", "/transcript", "/events?limit=10"] {
        assert_eq!(
            soon(&gateway, Method::GET, &of(&floods, read)).await.status,
            200,
            "{read}"
        );
    }
    assert_eq!(
        soon(&gateway, Method::POST, &of(&floods, "/cancel"))
            .await
            .status,
        202
    );
    assert_eq!(ended(&floods).await, "cancelled");
    disk.heal();
    eventually(
        "the reserve is set aside again",
        Duration::from_secs(20),
        || async { (ready(&gateway).await == 200 && reserved() == RESERVE).then_some(()) },
    )
    .await;
    assert_eq!(gateway.turn(&hangs, "echo after").await["text"], "after");
    History::of(&gateway, Vec::new()).await.assert_holds();
}
