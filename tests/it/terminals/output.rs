//! Output of commands: limits, characters, floods.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{SERVED, gateway, last, logged_output, play, prompt, shell};
use crate::support::Setup;
use crate::support::procfs::resident;

#[tokio::test]
async fn the_last_bytes_are_kept_from_a_character_s_start() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    for (limit, shown, truncated) in [
        (100, "aéé€x", false),
        (9, "aéé€x", false),
        (8, "éé€x", true),
        (7, "é€x", true),
        (3, "x", true),
        (0, "", true),
    ] {
        let create = json!({ "create": { "command": "printf", "args": ["aéé€x"], "outputByteLimit": limit } });
        let came = play(&gateway, &session, &json!([create, "wait", "output"])).await;
        assert_eq!(came[2].1["output"], shown, "{limit}");
        assert_eq!(came[2].1["truncated"], truncated, "{limit}");
        play(&gateway, &session, &json!([{ "release": came[0].1 }])).await;
    }
}

#[tokio::test]
async fn split_character_is_joined_and_invalid_bytes_are_replaced() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    let script = r"printf 'a\360\237'; while ! [ -e go ]; do sleep 0.02; done; printf '\230\200b\377c'; printf '\303'";
    let steps = json!([shell(script), "wait", "output"]);
    let (output, ()) = tokio::join!(last(&gateway, &session, &steps), async {
        gateway
            .log_until(&session, |event| event["type"] == "terminal.output")
            .await;
        let cwd = gateway.get_session(&session).await["cwd"]
            .as_str()
            .expect("a folder")
            .to_owned();
        std::fs::write(format!("{cwd}/go"), "").expect("the folder is ours");
    });
    assert_eq!(output["output"], "a😀b\u{fffd}c\u{fffd}");
    let events = gateway.lawful(&session).await;
    assert_eq!(logged_output(&events, "t1"), "a😀b\u{fffd}c\u{fffd}");
    let pieces = events
        .iter()
        .filter(|event| event["type"] == "terminal.output")
        .count();
    assert!(pieces >= 2, "the first output is shown first");
}

#[tokio::test]
async fn output_is_read_while_the_command_runs() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    let script = "echo ready; while ! [ -e go ]; do sleep 0.02; done; echo gone";
    let steps = json!([
        shell(script),
        { "poll": "ready\n" },
        "output",
        { "create": { "command": "touch", "args": ["go"] } },
        { "wait": { "terminalId": "t1" } },
        { "output": { "terminalId": "t1" } },
    ]);
    let came = play(&gateway, &session, &steps).await;
    assert_eq!(
        came[1].1,
        json!({ "output": "ready\n", "truncated": false }),
        "no exit status yet"
    );
    assert_eq!(came[4].1["output"], "ready\ngone\n");
}

#[tokio::test]
async fn flood_is_bounded_and_does_not_affect_others() {
    let gateway = Setup::fake_with(&[], SERVED)
        .settings("testing.max_terminal_log_bytes = \"1MiB\"")
        .start();
    let loud = gateway.session("fake").await;
    let calm = gateway.session("fake").await;
    gateway.turn(&calm, "echo warm").await;
    let before = resident(gateway.pid());
    let script = "head -c 100000000 /dev/zero | tr '\\0' 'x'; echo; echo the end";
    gateway
        .prompt(&loud, &prompt(&json!([shell(script), "wait", "output"])))
        .await;
    let mut slowest = Duration::ZERO;
    let mut most = 0;
    let ended = loop {
        let began = Instant::now();
        assert_eq!(gateway.turn(&calm, "echo calm").await["text"], "calm");
        slowest = slowest.max(began.elapsed());
        most = most.max(resident(gateway.pid()));
        let turn = gateway
            .get(&format!("/v1/sessions/{loud}/prompts/p1"))
            .await;
        if turn["status"] != "running" {
            break turn;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(
        ended["text"]
            .as_str()
            .expect("a text")
            .contains("the end\\n\",\"truncated\":true")
    );
    assert!(most < before + (64 << 10), "{before} KiB grew to {most}");
    assert!(slowest < Duration::from_secs(15), "{slowest:?}");

    let events = gateway.lawful(&loud).await;
    let output: Vec<_> = events
        .iter()
        .filter(|event| event["type"] == "terminal.output")
        .collect();
    let logged: usize = output
        .iter()
        .map(|event| event["data"].as_str().expect("text").len())
        .sum();
    assert!(
        (1 << 20..(1 << 20) + (128 << 10)).contains(&logged),
        "{logged}"
    );
    let last = output.last().expect("an end");
    assert!(
        last["data"]
            .as_str()
            .expect("text")
            .ends_with("x\nthe end\n"),
        "the end is logged in any case"
    );
    let end = last["offset"].as_u64().expect("a number")
        + last["data"].as_str().expect("text").len() as u64;
    assert_eq!(end, 100_000_009, "the offset shows the gap");
}

#[tokio::test]
async fn much_output_that_is_within_the_limit_is_logged_whole() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    let output = last(
        &gateway,
        &session,
        &json!([shell("seq 1 200000"), "wait", "output"]),
    )
    .await;
    let whole: Vec<String> = (1..=200_000)
        .map(|number: u32| number.to_string())
        .collect();
    let whole = whole.join("\n") + "\n";
    assert!(whole.ends_with(output["output"].as_str().expect("text")));
    assert_eq!(output["truncated"], true);
    let events = gateway.lawful(&session).await;
    assert_eq!(logged_output(&events, "t1"), whole);
    let pieces = events
        .iter()
        .filter(|event| event["type"] == "terminal.output")
        .count();
    assert!(pieces < 200, "they are gathered: {pieces}");
}

#[tokio::test]
async fn polls_return_at_once_and_create_no_events() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    let create = json!({ "create": {
        "command": "sh", "args": ["-c", "printf ready; sleep 60"], "outputByteLimit": 100_000,
    } });
    let polls = std::iter::repeat_n(json!("output"), 200);
    let steps: Vec<_> = [create, json!({ "poll": "ready" })]
        .into_iter()
        .chain(polls)
        .collect();
    let began = Instant::now();
    let came = play(&gateway, &session, &json!(steps)).await;
    assert_eq!(came.len(), 201);
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    // Output is collected for a moment before it is logged. All polls may be shorter than that.
    gateway
        .log_until(&session, |event| event["type"] == "terminal.output")
        .await;
    let events = gateway.lawful(&session).await;
    assert_eq!(
        events
            .iter()
            .filter(|event| event["type"] == "terminal.output")
            .count(),
        1
    );
}
