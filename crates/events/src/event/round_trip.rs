//! Each event type: written by its builder, framed, and read again.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::value::RawValue;
use utoipa::PartialSchema;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;

use super::table::schemas;
use super::testing::assert_head;
use super::*;
use crate::api::{AcpRequest, CancelCause, Problem, ProblemCode, Resolution, Session};
use base::types::{
    Access, AppliedIsolation, ModeSelection, PromptId, RequestId, SessionId, TerminalId, Timestamp,
};

const SESSION: &str = "01938c5e-7a3b-7c4d-8e5f-0123456789ab";
/// The head of another event.
const IMITATION: &str = r#"{"id":"x-9","seq":9,"type":"prompt.completed","sessionId":"01938c5e-7a3b-7c4d-8e5f-000000000000","time":"2000-01-01T00:00:00.000Z","promptId":"p9"}"#;

/// The values of an event. Each type uses some of them.
#[derive(Debug)]
struct Values {
    seq: u64,
    time: Timestamp,
    prompt: Option<PromptId>,
    text: String,
    other: Option<String>,
    number: u64,
    flag: bool,
    raw: Box<RawValue>,
    more: Option<Box<RawValue>>,
}

impl Values {
    fn request(&self) -> RequestId {
        RequestId::new(u32::try_from(self.number % 1000).unwrap() + 1)
    }

    fn terminal(&self) -> TerminalId {
        TerminalId::new(u32::try_from(self.number % 1000).unwrap() + 1)
    }

    fn exit_code(&self) -> Option<i32> {
        self.flag.then_some(-1)
    }

    fn problem(&self) -> Problem {
        Problem {
            acp: None,
            auth_methods: self.more.clone(),
            ..Problem::new(ProblemCode::Internal, &self.text)
        }
    }

    fn acp_request(&self) -> AcpRequest {
        AcpRequest {
            client: self.text.as_str().into(),
            id: self.raw.clone(),
        }
    }

    fn session(&self) -> Session {
        let text = format!(
            r#"{{"sessionId":"{SESSION}","agent":"a","title":null,"metadata":{{}},"cwd":"/","state":"idle","attached":true,"createdAt":"{time}","updatedAt":"{time}","lastActivityAt":"{time}","lastOutcome":"failed","promptId":"p9","queued":["p9"],"requests":[],"promptCapabilities":{raw},"modes":null,"configOptions":null,"availableCommands":null,"plan":null,"usage":null,"policy":{{}},"revision":3,"lastEventId":"x-9"}}"#,
            time = self.time,
            raw = self.raw,
        );
        serde_json::from_str(&text).unwrap()
    }
}

/// Text with everything that an agent may use to imitate a head or a frame.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,9}",
        Just(IMITATION.to_owned()),
        Just("\"}\n\nid: x-9\nevent: reset\ndata: {}\n\n".to_owned()),
        Just("\",\"promptId\":\"p9".to_owned()),
    ]
}

/// An object of an agent, with the names of the head and with line breaks between its tokens.
fn raw() -> impl Strategy<Value = Box<RawValue>> {
    let value = prop_oneof![
        text().prop_map(|text| serde_json::to_string(&text).unwrap()),
        Just(IMITATION.to_owned()),
        Just("1.10e400".to_owned()),
        Just(r#""\ud800""#.to_owned()),
    ];
    let name = prop::sample::select(vec![
        "promptId",
        "id",
        "seq",
        "type",
        "sessionId",
        "time",
        "x",
    ]);
    (prop::collection::vec((name, value), 0..4), "[ \r\n\t]{0,2}").prop_map(|(members, space)| {
        let members: Vec<_> = members
            .iter()
            .map(|(name, value)| format!("\"{name}\"{space}:{value}"))
            .collect();
        RawValue::from_string(format!("{{{space}{}}}", members.join(","))).unwrap()
    })
}

fn values() -> impl Strategy<Value = Values> {
    let head = (
        1..u64::MAX,
        -62_135_596_800_000_i64..253_402_300_800_000,
        prop::option::of(1..u32::MAX),
    );
    let members = (
        text(),
        prop::option::of(text()),
        any::<u64>(),
        any::<bool>(),
        raw(),
        prop::option::of(raw()),
    );
    (head, members).prop_map(
        |((seq, millis, prompt), (text, other, number, flag, raw, more))| Values {
            seq,
            time: Timestamp::from_millis(millis),
            prompt: prompt.map(PromptId::new),
            text,
            other,
            number,
            flag,
            raw,
            more,
        },
    )
}

/// The bytes in a frame: line breaks between tokens become spaces.
fn blank(json: &str) -> String {
    json.replace(['\n', '\r'], " ")
}

fn is_same(found: Option<&RawValue>, written: Option<&RawValue>) -> bool {
    found.map(RawValue::get) == written.map(|raw| blank(raw.get())).as_deref()
}

fn framed(event: &Event<'_>, v: &Values) -> Vec<u8> {
    let mut framer = Framer::new(&"k3".parse().unwrap(), SESSION.parse().unwrap());
    let mut out = Vec::new();
    framer.frame(&mut out, v.seq, event, v.time);
    out
}

/// Checks the head and all bytes of a framed event.
fn assert_read(frame: &[u8], written: &EncodedEvent, v: &Values) -> Result<(), TestCaseError> {
    let events: Vec<_> = events(frame, v.seq).collect();
    prop_assert_eq!(events.len(), 1);
    let event = events[0];
    let head = events[0].head().unwrap();
    prop_assert_eq!(event.raw_frame(), frame);
    prop_assert_eq!((event.seq(), event.kind()), (v.seq, written.kind()));
    assert_head(&event, "k3", SESSION);
    prop_assert_eq!((head.time(), head.prompt_id()), (Some(v.time), v.prompt));
    let json = std::str::from_utf8(event.raw_json()).unwrap();
    let members = blank(std::str::from_utf8(written.members()).unwrap());
    let end = if members.is_empty() {
        "}".to_owned()
    } else {
        format!(",{members}}}")
    };
    let own = json.strip_suffix(&end).unwrap();
    let prompt = v
        .prompt
        .map(|prompt| format!(r#","promptId":"{prompt}""#))
        .unwrap_or_default();
    prop_assert!(
        own.ends_with(&format!(r#","time":"{}"{prompt}"#, v.time)),
        "{own}"
    );
    Ok(())
}

macro_rules! round_trips {
    ($($name:ident: $kind:ident, |$v:ident, $read:ident| $event:expr => $holds:expr;)*) => {
        proptest! {
            $(#[test]
            fn $name($v in values()) {
                let event = $event;
                let encoded = EncodedEvent::from(&event);
                let frame = framed(&encoded.in_turn($v.prompt), &$v);
                assert_read(&frame, &encoded, &$v)?;
                let $read = EventRef::parse($v.seq, &frame).unwrap().payload().unwrap();
                prop_assert!($holds, "{:?}", $read);
            })*
        }

        #[test]
        fn every_logged_type_has_a_round_trip() {
            let tested: BTreeSet<&str> = [$($kind::TYPE),*].into();
            let logged = TYPES.iter().filter(|row| row.logged).map(|row| row.name).collect();
            assert_eq!(tested, logged);
        }
    };
}

round_trips! {
    session_created: SessionCreated, |v, read| {
        SessionCreated { session: &v.session(), forked_from: v.flag.then(|| SESSION.parse().unwrap()), adopted: v.flag }
    } => read.forked_from.is_some() == v.flag
        && read.session.unwrap().get() == blank(&serde_json::to_string(&v.session()).unwrap());
    session_attached: SessionAttached, |v, read| SessionAttached {
        by: AttachedBy::Load,
        context: Context::Lost,
        reason: v.flag.then_some(LostReason::RejectedSession),
        detail: v.other.as_deref(),
        isolation: v.flag.then(AppliedIsolation::default),
        protocol_version: 1,
        agent_info: v.more.as_deref(),
        agent_capabilities: &v.raw,
        result: v.more.as_deref(),
        denied_modes: &[ModeSelection::mode(&v.text)],
    } => (read.by.as_deref(), read.context.as_deref()) == (Some("load"), Some("lost"))
        && is_same(read.result, v.more.as_deref());
    session_detached: SessionDetached, |v, read| SessionDetached { reason: DetachedReason::Reclaimed } => read.by.is_none();
    session_changed: SessionChanged, |v, read| SessionChanged {
        by: &v.text,
        title: v.flag.then_some(v.other.as_deref()),
        metadata: None,
        current_mode_id: v.other.as_deref(),
        config_options: v.more.as_deref(),
    } => {
        let event = SessionChanged { by: "", title: Some(None), ..SessionChanged::default() };
        read.by.as_deref() == Some(&v.text) && is_same(EncodedEvent::from(&event).changed_members().title, Some(RawValue::NULL))
    };
    session_privileged_mode: SessionPrivilegedMode, |v, read| SessionPrivilegedMode {
        mode_id: v.other.as_deref(),
        config_id: v.other.as_deref(),
        value: Some(&v.text),
        subagent: v.other.as_deref(),
    } => read.subagent == v.other.as_deref().map(Into::into);
    session_closed: SessionClosed, |v, read| SessionClosed { by: &v.text } => read.by.as_deref() == Some(&v.text);
    session_deleted: SessionDeleted, |v, read| SessionDeleted { by: &v.text } => read.by.as_deref() == Some(&v.text);
    prompt_queued: PromptQueued, |v, read| PromptQueued {
        prompt: &v.raw,
        position: 1,
        by: &v.text,
        idempotency_key: v.other.as_deref(),
        acp_request: None,
        broadcast_id: None,
    } => is_same(read.prompt, Some(&v.raw)) && read.by.as_deref() == Some(&v.text);
    prompt_changed: PromptChanged, |v, read| PromptChanged {
        prompt: v.more.as_deref(),
        before: v.flag.then_some(v.prompt),
        by: &v.text,
    } => is_same(read.prompt, v.more.as_deref()) && read.by.as_deref() == Some(&v.text);
    prompt_started: PromptStarted, |v, read| PromptStarted {
        prompt: v.more.as_deref(),
        by: &v.text,
        idempotency_key: v.other.as_deref(),
        acp_request: None,
        broadcast_id: None,
    } => read.acp_request.is_none() && is_same(read.prompt, v.more.as_deref()) && read.by.as_deref() == Some(&v.text);
    session_update: SessionUpdate, |v, read| SessionUpdate {
        update: &v.raw,
        meta: v.more.as_deref(),
        more: v.more.as_deref(),
        subagent: v.other.as_deref(),
        late: v.flag,
        replayed: v.flag,
        echo: v.flag,
    } => read.echo == v.flag && is_same(read.update, Some(&v.raw)) && read.subagent == v.other.as_deref().map(Into::into) && read.late == v.flag;
    prompt_completed: PromptCompleted, |v, read| PromptCompleted {
        stop_reason: &v.text,
        result: &v.raw,
        usage: v.more.as_deref(),
        cancel_cause: v.flag.then_some(CancelCause::Silence),
        acp_request: Some(&v.acp_request()),
    } => read.stop_reason.as_deref() == Some(&v.text)
        && is_same(read.acp_request.as_ref().map(|request| &*request.id), Some(&v.raw))
        && is_same(read.result, Some(&v.raw))
        && read.cancel_cause == v.flag.then_some(CancelCause::Silence)
        && is_same(read.usage, v.more.as_deref());
    prompt_failed: PromptFailed, |v, read| PromptFailed { problem: &v.problem(), cancel_cause: None, acp_request: None }
        => read.problem.unwrap().get() == blank(&serde_json::to_string(&v.problem()).unwrap());
    request_created: RequestCreated, |v, read| RequestCreated {
        request_id: v.request(),
        method: &v.text,
        params: &v.raw,
        subagent: v.other.as_deref(),
        acp_client: v.other.as_deref(),
        deadline: v.flag.then_some(v.time),
    } => read.request_id == Some(v.request())
        && read.method.as_deref() == Some(&v.text)
        && is_same(read.params, Some(&v.raw))
        && read.acp_client == v.other.as_deref().map(Into::into)
        && read.subagent == v.other.as_deref().map(Into::into);
    request_resolved: RequestResolved, |v, read| RequestResolved {
        request_id: v.request(),
        method: &v.text,
        tool_call_id: v.other.as_deref(),
        resolution: Resolution::Policy,
        acp_client: v.other.as_deref(),
        by: v.other.as_deref(),
        result: v.more.as_deref(),
        error: Some(&v.raw),
    } => read.request_id == Some(v.request())
        && read.tool_call_id == v.other.as_deref().map(Into::into)
        && read.resolution == Some(Resolution::Policy)
        && read.acp_client == v.other.as_deref().map(Into::into)
        && read.by == v.other.as_deref().map(Into::into)
        && is_same(read.result, v.more.as_deref())
        && is_same(read.error, Some(&v.raw));
    elicitation_completed: ElicitationCompleted, |v, read| {
        ElicitationCompleted { elicitation_id: &v.text, more: v.more.as_deref() }
    } => read.by.is_none();
    terminal_created: TerminalCreated, |v, read| TerminalCreated {
        terminal_id: v.terminal(),
        command: &v.text,
        args: std::slice::from_ref(&v.text),
        cwd: &v.text,
    } => read.terminal_id == Some(v.terminal());
    terminal_output: TerminalOutput, |v, read| {
        TerminalOutput { terminal_id: v.terminal(), offset: v.number, data: &v.text }
    } => (read.terminal_id, read.offset, read.data.as_deref())
        == (Some(v.terminal()), Some(v.number), Some(&*v.text));
    terminal_exited: TerminalExited, |v, read| {
        TerminalExited { terminal_id: v.terminal(), exit_code: v.exit_code(), signal: v.other.as_deref() }
    } => read.terminal_id == Some(v.terminal());
    agent_exited: AgentExited, |v, read| {
        AgentExited {
            exit_code: v.exit_code(), signal: v.other.as_deref(), stderr_tail: &v.text, exceeded_limit: v.other.as_deref(),
            disconnected: v.other.as_deref()
        }
    } => read.by.is_none();
    agent_invalid_output: AgentInvalidOutput, |v, read| {
        AgentInvalidOutput { lines: v.number, bytes: v.number, excerpt: v.text.as_str().into() }
    } => read.by.is_none();
    extension: Extension, |v, read| {
        Extension { method: &v.text, params: v.more.as_deref(), subagent: v.other.as_deref() }
    } => read.method.as_deref() == Some(&v.text) && is_same(read.params, v.more.as_deref());
}

proptest! {
    #[test]
    fn chunk_equals_encoded_update(v in values()) {
        let update = &*v.raw;
        let meta = v.more.as_deref();
        let event = SessionUpdate { update, meta, more: None, subagent: None, late: v.flag, replayed: false, echo: false };
        let meta = meta.map(|meta| meta.get().as_bytes());
        let chunk = SessionUpdate::chunk(v.prompt, update.get().as_bytes(), meta, v.flag);
        prop_assert_eq!(framed(&chunk, &v), framed(&EncodedEvent::from(&event).in_turn(v.prompt), &v));
    }

    #[test]
    fn control_frames_read_as_written(v in values()) {
        let problem = v.problem();
        let session = v.session();
        let cursor = "k3-7";
        assert_control(&Reset { reason: ResetReason::Pruned, session: v.flag.then_some(&session) }, &v)?;
        assert_control(&Ready { last_event_id: cursor }, &v)?;
        assert_control(&PositionFrame {}, &v)?;
        assert_control(&SessionSummaryFrame { session: v.flag.then_some(&*v.raw) }, &v)?;
        assert_control(&SummariesReset {}, &v)?;
        assert_control(&SessionSharedFrame { access: Access::Read, last_event_id: cursor }, &v)?;
        assert_control(&SessionUnsharedFrame { last_event_id: cursor }, &v)?;
        assert_control(&ProblemFrame { problem: &problem }, &v)?;
        assert_control(&ShutdownFrame { retry_ms: v.number }, &v)?;
        assert_control(&EndFrame { reason: EndReason::CaughtUp, last_event_id: cursor }, &v)?;
    }
}

/// Checks all bytes of a control frame.
fn assert_control<E: EventMembers>(event: &E, v: &Values) -> Result<(), TestCaseError> {
    let cursor = v.flag.then(|| "k3-7".to_owned());
    let frame = ControlFrame::new(event, v.time)
        .with_id(cursor.clone())
        .with_session(SESSION.parse::<SessionId>().ok());
    prop_assert_eq!((frame.id(), frame.kind()), (cursor.as_deref(), E::TYPE));
    let id = cursor
        .map(|cursor| format!(r#""id":"{cursor}","#))
        .unwrap_or_default();
    let members = blank(&serde_json::to_string(event).unwrap());
    let comma = if members == "{}" { "" } else { "," };
    let head = format!(
        r#"{{{id}"type":"{}","sessionId":"{SESSION}","time":"{}"{comma}"#,
        E::TYPE,
        v.time
    );
    prop_assert_eq!(
        frame.json(),
        format!("{head}{}", &members[1..]).into_bytes()
    );
    Ok(())
}

#[test]
fn no_event_type_has_a_member_of_the_head() {
    let names = |schema| match schema {
        RefOr::T(Schema::Object(object)) => {
            object.properties.into_keys().collect::<BTreeSet<String>>()
        }
        _ => unreachable!("events are objects"),
    };
    let head = names(EventHead::schema());
    for (row, members) in TYPES.iter().zip(schemas()) {
        assert!(names(members).is_disjoint(&head), "{}", row.name);
    }
}
