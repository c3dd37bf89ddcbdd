//! The stored form of each record. A change of these texts needs a new version of the format.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use events::api::{Problem, ProblemCode, RpcError};

const SESSION: &str = r#"{"sessionId":"01938c5e-7a3b-7c4d-8e5f-0123456789ab","owner":"default/alice","agent":"demo","title":"a title","metadata":{"k":1},"cwd":"/w","ownFolder":true,"remoteFolders":false,"sharedFolder":false,"folderOf":null,"additionalDirectories":["/x"],"mcpServers":["m"],"meta":{"a": 1},"policy":{"permissions":{"onTimeout":"wait","timeoutSeconds":60,"allow":["read"]},"files":"gateway","terminals":"off"},"state":"waiting","attached":true,"isolation":{"level":"private","mechanism":"namespaces"},"agentSessionId":"theirs","createdAt":"2026-11-21T22:15:03.123Z","updatedAt":"2026-11-21T22:15:04.123Z","lastActivityAt":"2026-11-21T22:15:04.023Z","lastOutcome":"completed","lastPrompt":3,"lastRequest":2,"openRequests":["r2"],"lastTerminal":1,"openTerminals":["t1"],"promptId":"p2","queued":["p3"],"promptCapabilities":{"image":true},"models":false,"unfinished":false,"inheritsHistory":false,"called":true,"loadNotBefore":"2026-11-21T22:15:09.123Z","restoreFailures":0,"discardsContext":false,"seq":41}"#;
const PROMPT: &str = r#"{"promptId":"p2","status":"completed","by":"alice","createdAt":"2026-11-21T22:15:03.123Z","endedAt":"2026-11-21T22:15:04.123Z","firstSeq":4,"lastSeq":9,"stopReason":"end_turn","usage":{"inputTokens": 1},"error":null}"#;
const UNSENT: &str = r#"{"promptId":"p2","status":"running","by":"alice","createdAt":"2026-11-21T22:15:03.123Z","endedAt":null,"firstSeq":4,"lastSeq":null,"stopReason":null,"usage":null,"error":null,"unsent":true}"#;
const PROBLEM: &str = r#"{"type":"/docs/problems#agent_error","title":"The agent answered with an error","status":502,"detail":"it broke","code":"agent_error","retryable":false,"errors":[{"pointer":"/a","detail":"b"}],"acp":{"code":-32000,"message":"m","data":{"x": 1}},"authMethods":[1, 2],"retryAfterSeconds":5,"promptId":"p1","requestId":"r1","resolution":"answered","by":"bob","exitCode":1,"signal":"SIGKILL","stderrTail":"boom"}"#;
const OPEN_REQUEST: &str = r#"{"pending":{"requestId":"r1","method":"session/request_permission","params":{"sessionId": "s"},"promptId":"p1","subagent":"child","createdAt":"2026-11-21T22:15:03.123Z","deadline":null},"resolution":null,"by":null}"#;
const RESOLVED_REQUEST: &str = r#"{"pending":null,"resolution":"answered","by":"alice"}"#;
const TERMINAL: &str = r#"{"shown":{"terminalId":"t1","promptId":"p1","command":"ls","args":["-l"],"cwd":"/w","createdAt":"2026-11-21T22:15:03.123Z","exitStatus":{"exitCode":null,"signal":"SIGKILL"}},"firstSeq":3,"lastSeq":5}"#;
const FOLD: &str = r#"{"seq":7,"fold":{}}"#;

fn assert_form<T: Serialize + DeserializeOwned>(text: &str) -> T {
    let record: T = decode(text.as_bytes()).unwrap();
    assert_eq!(encode(&record), text);
    record
}

#[test]
fn stored_form_of_records_is_unchanged() {
    let session: SessionRecord = assert_form(SESSION);
    assert_eq!(session.state, SessionState::Waiting);
    let imported = r#""importedFrom":"01938c5e-7a3b-7c4d-8e5f-0123456789ac","loadNotBefore""#;
    let imported: SessionRecord = assert_form(&SESSION.replace(r#""loadNotBefore""#, imported));
    assert!(imported.imported_from.is_some());
    assert_form::<PromptRecord>(PROMPT);
    assert!(assert_form::<PromptRecord>(UNSENT).unsent);
    assert_form::<PromptRecord>(&PROMPT.replace("\"error\":null", &format!("\"error\":{PROBLEM}")));
    assert_form::<RequestRecord>(OPEN_REQUEST);
    assert_form::<RequestRecord>(RESOLVED_REQUEST);
    assert_form::<TerminalRecord>(TERMINAL);
    assert_eq!(decode::<FoldRecord>(FOLD.as_bytes()).unwrap().seq, 7);
    let hash = serde_json::to_string(&[7_u8; 32]).unwrap();
    let session = "01938c5e-7a3b-7c4d-8e5f-0123456789ab";
    assert_form::<IdempotencyRecord>(&format!(
        r#"{{"body_hash":{hash},"expires_at":"2026-11-21T22:15:03.123Z","session":"{session}","prompt":"p1"}}"#
    ));
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

#[test]
fn a_problem_has_the_same_form_in_records_and_events() {
    let mut problem = Problem::new(ProblemCode::AgentError, "it broke");
    let data = serde_json::value::to_raw_value("x").ok();
    problem.acp = Some(RpcError {
        code: -32000,
        message: "m".to_owned(),
        data,
    });
    problem.prompt_id = Some(PromptId::FIRST);
    problem.resolution = Some(Resolution::Answered);
    assert_eq!(
        text(&decode::<Problem>(text(&problem).as_bytes()).unwrap()),
        text(&problem)
    );
    assert_eq!(
        text(&decode::<Problem>(PROBLEM.as_bytes()).unwrap()),
        PROBLEM,
        "an event contains the same object"
    );
}
