//! Tests of the Markdown export.

use super::*;
use crate::transcript::TurnFold;
use events::event::testing::{event, frame};

fn session(title: &str) -> Session {
    serde_json::from_str(&format!(
        r#"{{"sessionId":"01938c5e-7a3b-7c4d-8e5f-0123456789ab","agent":"demo","title":{title},"metadata":{{}},
        "cwd":"/w","state":"idle","attached":false,"createdAt":"2026-11-21T22:00:00.000Z",
        "updatedAt":"2026-11-21T22:00:00.000Z","lastActivityAt":"2026-11-21T22:00:00.000Z","lastOutcome":null,"promptId":null,"queued":[],"requests":[],"promptCapabilities":null,
        "modes":null,"configOptions":null,"availableCommands":null,"plan":null,"usage":null,"policy":{{}},"revision":0,
        "lastEventId":"k3-9"}}"#
    ))
    .unwrap()
}

fn turn(id: u32, events: &[(&str, &str)]) -> Turn {
    let mut fold = TurnFold::default();
    for (kind, members) in events {
        fold.event(&event(&frame(
            1,
            kind,
            Some(id),
            "2026-11-21T22:15:00.000Z",
            members,
        )));
    }
    fold.finish().unwrap()
}

fn full_turn() -> Turn {
    turn(
        1,
        &[
            (
                "prompt.started",
                r#""by":"alice","prompt":[{"type":"text","text":"Fix\nit"},{"type":"resource_link","uri":"file:///a","name":"a"}]"#,
            ),
            (
                "session.update",
                r#""update":{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"So </details>"}}"#,
            ),
            (
                "session.update",
                r##""update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"# Sure\n\u001b[2J"}}"##,
            ),
            (
                "session.update",
                r#""update":{"sessionUpdate":"tool_call","toolCallId":"c","kind":"edit","title":"Edit *a*\nb","content":[{"type":"diff","path":"/w/a.md","oldText":"```\nold\n","newText":"```\nnew\n"},{"type":"content","content":{"type":"text","text":"ok"}}]}"#,
            ),
            (
                "request.created",
                r#""requestId":"r1","method":"session/request_permission","params":{"toolCall":{"toolCallId":"c"},"options":[{"optionId":"y","name":"Allow","kind":"allow_once"}]}"#,
            ),
            (
                "request.resolved",
                r#""requestId":"r1","resolution":"answered","by":"bob","result":{"outcome":{"outcome":"selected","optionId":"y"}}"#,
            ),
            (
                "session.update",
                r#""update":{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed"}"#,
            ),
            (
                "session.update",
                r#""update":{"sessionUpdate":"notice","title":"Low","description":"on tokens"}"#,
            ),
            ("prompt.completed", r#""stopReason":"end_turn","result":{}"#),
        ],
    )
}

fn failed_turn() -> Turn {
    turn(
        2,
        &[
            (
                "prompt.started",
                r#""by":"alice","prompt":[{"type":"text","text":"Again"}]"#,
            ),
            ("session.attached", r#""by":"fresh","context":"lost""#),
            (
                "session.update",
                r#""update":{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"Again"}}"#,
            ),
            (
                "request.created",
                r#""requestId":"r2","method":"_x/ask","params":{}"#,
            ),
            (
                "prompt.failed",
                r#""problem":{"code":"agent_exited","title":"The agent's process ended","detail":"It ended with code 1"}"#,
            ),
        ],
    )
}

#[test]
fn transcript_renders_as_markdown() {
    let page = markdown(
        &session(r#""A <b>title</b>""#),
        &[failed_turn(), full_turn()],
    );
    insta::assert_snapshot!(page, @r"
    # A \<b\>title\</b\>

    - Agent: demo
    - Directory: `/w`
    - Session: 01938c5e-7a3b-7c4d-8e5f-0123456789ab
    - Created: 2026-11-21T22:00:00.000Z

    ## Turn p1

    *2026-11-21T22:15:00.000Z, alice*

    > Fix
    > it
    >
    > [resource\_link: `file:///a`]

    <details><summary>Thought</summary>

    So &lt;/details>

    </details>

    # Sure


    - **edit** Edit \*a\* b (completed)

      `/w/a.md`

      ````diff
       ```
      -old
      +new
      ````

      ```
      ok
      ```

    - *Permission: Allow, answered by bob*

    > **Low**: on tokens

    *Stopped: end\_turn.*

    ## Turn p2

    *2026-11-21T22:15:00.000Z, alice*

    > Again

    *The agent lost the context of the conversation and starts anew.*

    - *Request `_x/ask`: pending*

    *Failed (agent\_exited): It ended with code 1*
    ");
}

#[test]
fn subagents_are_distinguished_from_agent() {
    let chunk = |words: &str| {
        format!(
            r#""sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{words}"}}"#
        )
    };
    let of_child = format!(r#""update":{{{}}},"subagent":"c""#, chunk("I looked"));
    let call = r#""update":{"sessionUpdate":"tool_call","toolCallId":"t","kind":"read","title":"Read","content":[{"type":"terminal","terminalId":"t1"}]},"subagent":"c""#;
    let page = markdown(
        &session("null"),
        &[turn(
            1,
            &[
                ("prompt.started", r#""by":"a","prompt":[]"#),
                (
                    "session.update",
                    r#""update":{"sessionUpdate":"subagent_update","sessionId":"c","title":"<Look>","description":"around","state":{"state":"idle"}}"#,
                ),
                (
                    "session.update",
                    r#""update":{"sessionUpdate":"session_message","messageId":"m","senderSessionId":"p","recipientSessionId":"c","content":[{"type":"text","text":"Go"}]}"#,
                ),
                ("session.update", &of_child),
                ("session.update", call),
                (
                    "session.update",
                    &format!(r#""update":{{{}}}"#, chunk("Done")),
                ),
                (
                    "session.update",
                    r#""update":{"sessionUpdate":"plan","entries":[{"content":"Look","status":"completed"}]}"#,
                ),
                ("prompt.completed", r#""stopReason":"end_turn""#),
            ],
        )],
    );
    let (_, page) = page.split_once("2026-11-21T22:15:00.000Z, a*").unwrap();
    insta::assert_snapshot!(page, @r"
    - **subagent** \<Look\>: around (idle)

    <details><summary>Message from the agent to &lt;Look&gt;</summary>

    Go

    </details>

    <details><summary>Subagent &lt;Look&gt; says</summary>

    I looked

    </details>

    - **read** Read (unfinished), by \<Look\>

      Terminal `t1`

    Done

    *Plan*

    - [x] Look

    *Stopped: end\_turn.*
    ");
}

#[test]
fn session_without_title_or_turns_renders() {
    let page = markdown(&session("null"), &[]);
    assert!(
        page.starts_with("# 01938c5e-7a3b-7c4d-8e5f-0123456789ab\n\n- Agent: demo\n"),
        "{page}"
    );
}

#[test]
fn agent_terminals_and_v2_diffs_render() {
    let page = markdown(
        &session("null"),
        &[turn(
            1,
            &[
                (
                    "prompt.started",
                    r#""by":"alice","prompt":[{"type":"text","text":"hi"}]"#,
                ),
                (
                    "session.update",
                    r#""update":{"sessionUpdate":"tool_call_update","toolCallId":"c","title":"Edit","kind":"edit","status":"completed","content":[{"type":"diff","changes":[{"operation":"move","path":"/b","oldPath":"/a"}],"patch":{"format":"git_patch","text":"-x\n+y\n"}}]}"#,
                ),
                (
                    "session.update",
                    r#""update":{"sessionUpdate":"terminal_update","terminalId":"t","command":"make","output":{"data":"b2sNCg=="}}"#,
                ),
            ],
        )],
    );
    for shown in [
        "move `/b` from `/a`",
        "-x",
        "+y",
        "- **terminal** `make`",
        "ok",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(!page.contains('\r'));
}

#[test]
fn every_plan_form_renders() {
    let shown = |plan: &str| plan_text(serde_json::from_str(plan).unwrap());
    let entries = r#"{"entries":[{"content":"a*b","status":"completed"},{"content":"c","status":"in_progress"},
        {"content":"d"},7,{"content":"e","status":"_new"}]}"#;
    assert_eq!(
        shown(entries).unwrap(),
        "*Plan*\n\n- [x] a\\*b\n- [ ] c *(in progress)*\n- [ ] d\n- [ ] e *(\\_new)*\n"
    );
    assert_eq!(
        shown(r#"{"type":"file","uri":"file:///p.md"}"#).unwrap(),
        "*Plan*\n\n`file:///p.md`"
    );
    assert_eq!(
        shown(r##"{"type":"markdown","content":"# P\nq"}"##).unwrap(),
        "*Plan*\n\n> # P\n> q\n"
    );
    for nothing in ["{}", r#"{"entries":[]}"#, "null", r#"{"entries":7}"#] {
        assert_eq!(shown(nothing), None, "{nothing}");
    }
}

#[test]
fn escaped_text_stays_text() {
    assert_eq!(inline("a*b_\n# <b>`[x](y)"), r"a\*b\_ \# \<b\>\`\[x\](y)");
    assert_eq!(element("a\n<b> & c"), "a &lt;b&gt; &amp; c");
    assert_eq!(code("a b"), "`a b`");
    assert_eq!(code("``x`"), "``` ``x` ```");
    assert_eq!(fenced("diff", "a\n````\n"), "`````diff\na\n````\n`````");
    assert_eq!(fenced("", "a"), "```\na\n```");
    assert_eq!(
        close_code_fence("a\n```rust\nlet a"),
        "a\n```rust\nlet a\n```"
    );
    for whole in [
        "a",
        "```\na\n```",
        "````\n```\n````\n",
        "~~~\n```\n~~~",
        "`` a",
        "",
    ] {
        assert_eq!(close_code_fence(whole), whole);
    }
    assert_eq!(blockquote("a\n\nb"), "> a\n>\n> b\n");
    assert_eq!(indent("a\n\nb"), "  a\n\n  b\n");
}
