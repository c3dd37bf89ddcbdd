//! `/ag-ui/{agent}`: a run, the earlier messages of a thread, and the capabilities of an agent.

use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};

use super::encoder::{Run, RunWriter, call_id, message_id, result_id};
use crate::surface::chat::{
    Approval, ChatRequest, ChatTurn, Continued, Converted, ErrorFormat, LatestTurn, Message,
    PastTurn, QuestionId, TurnEncoder, answer, media_block, open_request, resource_link, respond,
    send_answer, steps_of, text_part, with_layers,
};
use crate::surface::http::{
    AnyQuery, ApiError, ApiRequest, AppState, Authorized, CanPrompt, CanRead, JsonBody, Result,
    WholeHistory,
};
use base::types::{AgentName, PromptId, RequestId, Scope, SessionId};
use sessions::projection::{Role, Step, ToolCall};
use sessions::session::{Answer, SessionHandle};
use sessions::transcript::decode;
use wire::acp::{PromptCapabilities, method, to_raw};

const PROTOCOL: &str = "ag-ui";

pub(in crate::surface) fn router(app: &AppState) -> Router<AppState> {
    with_layers(
        Router::new().route("/ag-ui/{agent}", get(capabilities).post(run)),
        app,
        ErrorFormat::Json,
    )
}

async fn run(
    request: ApiRequest<CanPrompt, AgentName, AnyQuery>,
    headers: HeaderMap,
    body: JsonBody<RunInput, WholeHistory>,
) -> Result<Response> {
    request.agent()?;
    let app = request.app;
    let by = request.by;
    let agent = request.ids;
    let input = body.value;
    let messages = input.messages();
    let newest = messages.iter().rfind(|message| message.is_spoken());
    let latest = LatestTurn::find(&app, &by, &agent, PROTOCOL, &input.thread_id);
    if let Some(resume) = input.resume.as_deref().filter(|resume| !resume.is_empty()) {
        if let Some(message) = newest.filter(|message| message.is_user())
            && let Some(turn) = latest.await?
            && !turn.may_have(message)
        {
            let detail = "send `resume` and a new message in two runs; the run with `resume` continues the turn";
            return Err(ApiError::invalid("/messages", detail));
        }
        return continue_turn(&app, &by, &input, resume).await;
    }
    // A run without a new message shows the newest turn of the thread.
    if !newest.is_some_and(Message::is_user)
        && let Some(turn) = latest.await?
    {
        // The events would be added to the messages that the client has.
        let history = if messages.is_empty() {
            earlier_messages(&turn.history(MAX_TURNS).await?).await?
        } else {
            Vec::new()
        };
        let turn = turn.attach(&app, &by).await?;
        return Ok(respond_to(&app, &by, turn, &input, history, None));
    }
    let chat = ChatRequest {
        conversation: Some(input.thread_id.clone()),
        id: Some(input.run_id.clone()),
        // The same message in another run.
        asks_again: true,
        answers_first: true,
        ..ChatRequest::new(agent.clone(), PROTOCOL, messages, &headers)?
    };
    let turn = chat.begin(&app, &by).await?;
    Ok(respond_to(&app, &by, turn, &input, Vec::new(), None))
}

/// Answers the requests that a turn waits for. The run has the events after the newest of them.
async fn continue_turn(
    app: &AppState,
    by: &Authorized<CanPrompt>,
    input: &RunInput,
    resume: &[Resume],
) -> Result<Response> {
    let mut questions: Vec<QuestionId> = Vec::new();
    for (at, answer) in resume.iter().enumerate() {
        let detail =
            "expected the id of an interrupt of this gateway, as it is in the outcome of its run";
        let id = answer.interrupt_id.parse();
        questions
            .push(id.map_err(|_| ApiError::invalid(format!("/resume/{at}/interruptId"), detail))?);
    }
    let continued = Continued::after(app, by, questions.iter().copied()).await?;
    let mut turn = continued.turn;
    if turn.session.id().to_string() == input.thread_id {
        turn = turn.of_others();
    }
    for (question, resume) in questions.iter().zip(resume) {
        answer_interrupt(by, &turn.session, *question, resume).await?;
    }
    let received_until = Some(continued.question);
    Ok(respond_to(app, by, turn, input, Vec::new(), received_until))
}

async fn answer_interrupt(
    by: &Authorized<CanPrompt>,
    session: &SessionHandle,
    question: QuestionId,
    resume: &Resume,
) -> Result<()> {
    let request = question.request;
    let Some(pending) = open_request(session, request).await? else {
        return Ok(());
    };
    let payload = resume.payload.clone().unwrap_or(Value::Null);
    let cancelled = resume.status == "cancelled";
    if pending.method == method::SESSION_REQUEST_PERMISSION && !cancelled {
        let option = payload["optionId"].as_str();
        let approved = payload["approved"].as_bool().or(option.map(|_| true));
        let Some(approved) = approved else {
            let detail = "expected a payload with approved or optionId";
            return Err(ApiError::invalid("/resume", detail));
        };
        let reason = option.or(payload["reason"].as_str());
        let reason = reason.map(ToOwned::to_owned);
        let approval = Approval {
            question,
            approved,
            reason,
        };
        return answer(by, session, &approval).await;
    }
    by.require(Scope::Approve)?;
    let answer = if pending.method == method::SESSION_REQUEST_PERMISSION {
        Answer::Cancelled
    } else if cancelled {
        Answer::Elicitation(to_raw(&json!({ "action": "cancel" })))
    } else {
        Answer::Elicitation(to_raw(&json!({ "action": "accept", "content": payload })))
    };
    send_answer(by, session, request, answer).await
}

/// `history`: the messages that the client lacks. `received_until`: it has the events up to this request of the agent.
fn respond_to(
    app: &AppState,
    by: &Authorized<CanPrompt>,
    turn: ChatTurn,
    input: &RunInput,
    history: Vec<Value>,
    received_until: Option<RequestId>,
) -> Response {
    let run = Run {
        thread: input.thread_id.clone(),
        id: input.run_id.clone(),
        knows_cancelled: input.protocol_version.is_some(),
        session: turn.session.id(),
        prompt: turn.prompt,
        notices: turn.notices.clone(),
        history,
    };
    let connected = turn.cancel_on_disconnect(app);
    let encoder = TurnEncoder::new(RunWriter::new(run))
        .after(received_until)
        .cancels_on_disconnect(Some(connected));
    respond(app, by, turn, encoder, true)
}

/// `RunAgentInput`. Tools, context and state of the client do not reach an agent.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RunInput {
    thread_id: String,
    run_id: String,
    /// Clients before version 1.0 send none, and do not know the outcome `cancelled`.
    protocol_version: Option<String>,
    #[serde(default)]
    messages: Vec<InputMessage>,
    resume: Option<Vec<Resume>>,
}

#[derive(Debug, Deserialize)]
struct InputMessage {
    id: Option<String>,
    role: String,
    content: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resume {
    interrupt_id: String,
    #[serde(default)]
    status: String,
    payload: Option<Value>,
}

impl RunInput {
    fn messages(&self) -> Vec<Message> {
        let messages = self.messages.iter().enumerate();
        let messages = messages.map(|(at, message)| {
            let pointer = format!("/messages/{at}/content");
            let content = message.content.as_ref();
            let mut parsed = Message::parsed(&message.role, content, pointer, block);
            parsed.id.clone_from(&message.id);
            parsed
        });
        messages.collect()
    }
}

fn block(part: &Value) -> Converted {
    let name = part["filename"].as_str();
    match part["type"].as_str().unwrap_or_default() {
        "text" => text_part(part),
        "image" | "audio" | "video" | "document" => {
            let source = &part["source"];
            let value = source["value"].as_str().ok_or("expected `source.value`")?;
            match source["type"].as_str() {
                Some("data") => media_block(value, source["mimeType"].as_str(), name),
                Some("url") => Ok(Some(resource_link(value, None))),
                _ => Err("the type of a source must be `data` or `url`"),
            }
        }
        "binary" => match (part["data"].as_str(), part["url"].as_str()) {
            (Some(data), _) => media_block(data, part["mimeType"].as_str(), name),
            (None, Some(url)) => Ok(Some(resource_link(url, name))),
            (None, None) => Err("the gateway stores no files; send `data` or `url`"),
        },
        _ => Err("this type of part is not known"),
    }
}

async fn capabilities(request: ApiRequest<CanRead, AgentName, AnyQuery>) -> Result<Json<Value>> {
    let spec = request.agent()?;
    let agent = &spec.name;
    // An agent reports its capabilities at its first start.
    let pool = request.app.pool();
    let stats = pool.agent_stats(agent, &request.by.user.tenant());
    let initialized = stats.and_then(|(_, initialized)| initialized);
    let prompt = initialized.map_or_else(PromptCapabilities::default, |initialized| {
        initialized.capabilities.prompt
    });
    Ok(Json(json!({
        "identity": { "name": agent, "type": "acp" },
        "transport": { "streaming": true, "websocket": false, "httpBinary": false, "resumable": true },
        "tools": { "supported": true, "clientProvided": false },
        "state": { "snapshots": true, "deltas": true, "persistentState": true },
        "reasoning": { "supported": true, "streaming": true, "encrypted": false },
        "multimodal": { "input": {
            "image": prompt.image,
            "audio": prompt.audio,
            "file": true,
        } },
        "humanInTheLoop": {
            "supported": true, "approvals": true, "interventions": false, "feedback": false, "interrupts": true,
            "approveWithEdits": false,
        },
    })))
}

/// The turns that a snapshot has. Older messages are left out, and the gateway accepts a history without them.
const MAX_TURNS: usize = 100;
/// The bytes of the messages of a snapshot.
const MAX_BYTES: usize = 4 << 20;

/// The messages of these turns, and of the user in the last one. Its other messages are the events of the run.
async fn earlier_messages(turns: &[PastTurn<'_>]) -> Result<Vec<Value>> {
    let mut newest_first = Vec::new();
    let mut bytes = 0;
    for (at, turn) in turns.iter().enumerate().rev() {
        let asked = json!({ "id": turn.message_id(), "role": "user", "content": turn.text });
        let mut messages = vec![asked];
        if at + 1 < turns.len() {
            messages.extend(answers(turn).await?);
        }
        let sizes = messages.iter().map(|message| message.to_string().len());
        bytes += sizes.sum::<usize>();
        if bytes > MAX_BYTES {
            break;
        }
        newest_first.push(messages);
    }
    Ok(newest_first.into_iter().rev().flatten().collect())
}

/// The messages of the agent in a turn, with the ids that its events had.
async fn answers(turn: &PastTurn<'_>) -> Result<Vec<Value>> {
    let mut messages = Messages {
        session: turn.session.id(),
        prompt: turn.prompt,
        all: Vec::new(),
        text: String::new(),
    };
    let each = |step: Step<'_>| messages.step(&step);
    steps_of(turn.session, turn.prompt, turn.range, each).await?;
    Ok(messages.all)
}

struct Messages {
    session: SessionId,
    prompt: PromptId,
    all: Vec<Value>,
    /// The inner part of the open text, a string in JSON.
    text: String,
}

impl Messages {
    fn step(&mut self, step: &Step<'_>) {
        match step {
            Step::Text(block, text) if block.subagent.is_none() => {
                self.text.push_str(&text.get()[1..text.get().len() - 1]);
            }
            Step::BlockEnded(block) if block.subagent.is_none() => {
                let text = decode(&format!("\"{}\"", self.text)).unwrap_or_default();
                self.text.clear();
                let role = match block.role {
                    Role::Message => "assistant",
                    Role::Thought => "reasoning",
                };
                let id = message_id(self.session, self.prompt, block.number);
                let message = json!({ "id": id, "role": role, "content": text });
                self.all.push(message);
            }
            Step::CallEnded(call) => self.call(call),
            _ => {}
        }
    }

    fn call(&mut self, call: &ToolCall) {
        let id = call_id(self.prompt, call);
        let function = json!({ "name": call.kind(), "arguments": call.input_text() });
        let calls = json!([{ "id": id, "type": "function", "function": function }]);
        let result = call.result_text();
        self.all.extend([
            json!({ "id": id, "role": "assistant", "toolCalls": calls }),
            json!({ "id": result_id(&id), "role": "tool", "toolCallId": id, "content": result }),
        ]);
    }
}
