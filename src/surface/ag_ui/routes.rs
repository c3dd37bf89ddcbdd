//! `/ag-ui/{agent}`: a run.

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::routing::get;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::encoder::{Run, RunWriter};
use super::input::{Resume, RunInput};
use super::{capabilities, history};
use crate::acp::method;
use crate::session::{Answer, AnswerError, SessionHandle};
use crate::surface::authorized::{AccessError, Authorized, CanPrompt};
use crate::surface::chat::{
    Approval, ChatRequest, ChatTurn, Continued, ErrorFormat, LatestTurn, Message, QuestionId,
    TurnEncoder, answer, read_json, respond, with_layers,
};
use crate::surface::rest::ApiError;
use crate::surface::state::Gateway;
use crate::types::{AgentName, RequestId, Scope};

const PROTOCOL: &str = "ag-ui";

pub(in crate::surface) fn router(gateway: &Gateway) -> Router<Gateway> {
    with_layers(
        Router::new().route("/ag-ui/{agent}", get(capabilities::get).post(run)),
        gateway,
        ErrorFormat::Json,
    )
}

async fn run(
    State(gateway): State<Gateway>,
    Path(agent): Path<AgentName>,
    request: Request,
) -> Result<Response, ApiError> {
    gateway
        .catalogue
        .agent(&agent)
        .ok_or_else(ApiError::not_found)?;
    let (parts, body) = request.into_parts();
    let by = Authorized::<CanPrompt>::from_parts(&parts)?;
    let (headers, input) =
        read_json::<RunInput>(&gateway, Request::from_parts(parts, body)).await?;
    let messages = input.messages();
    let newest = messages.iter().rfind(|message| message.is_spoken());
    if let Some(resume) = input.resume.as_deref().filter(|resume| !resume.is_empty()) {
        if let Some(message) = newest.filter(|message| message.is_user())
            && let Some(turn) =
                LatestTurn::find(&gateway, &by, (&agent, PROTOCOL, &input.thread_id)).await?
            && !turn.may_have(message)
        {
            let detail = "send `resume` and a new message in two runs; the run with `resume` continues the turn";
            return Err(ApiError::invalid("/messages", detail));
        }
        return continue_turn(&gateway, &by, &input, resume).await;
    }
    // A run without a new message shows the newest turn of the thread.
    if !newest.is_some_and(Message::is_user)
        && let Some(turn) =
            LatestTurn::find(&gateway, &by, (&agent, PROTOCOL, &input.thread_id)).await?
    {
        // The events would be added to the messages that the client has.
        let history = if messages.is_empty() {
            history::messages(&turn.history(history::MAX_TURNS).await?).await?
        } else {
            Vec::new()
        };
        let turn = turn.attach(&gateway, &by).await?;
        return Ok(respond_to(
            &gateway,
            &by,
            turn,
            &input,
            Begin {
                history,
                ..Begin::default()
            },
        ));
    }
    let chat = ChatRequest {
        conversation: Some(input.thread_id.clone()),
        id: Some(input.run_id.clone()),
        // The same message in another run.
        asks_again: true,
        answers_first: true,
        ..ChatRequest::new(agent, PROTOCOL, messages, &headers)?
    };
    let turn = chat.begin(&gateway, &by).await?;
    Ok(respond_to(&gateway, &by, turn, &input, Begin::default()))
}

/// Answers the requests that a turn waits for. The run has the events after the newest of them.
async fn continue_turn(
    gateway: &Gateway,
    by: &Authorized<CanPrompt>,
    input: &RunInput,
    resume: &[Resume],
) -> Result<Response, ApiError> {
    let questions: Result<Vec<QuestionId>, ApiError> = resume
        .iter()
        .enumerate()
        .map(|(at, answer)| {
            let detail = "expected the id of an interrupt of this gateway, as it is in the outcome of its run";
            let id = answer.interrupt_id.parse();
            id.map_err(|_| ApiError::invalid(format!("/resume/{at}/interruptId"), detail))
        })
        .collect();
    let questions = questions?;
    let Continued { turn, question, .. } =
        Continued::after(gateway, by, questions.iter().copied()).await?;
    let turn = if turn.session.id().to_string() == input.thread_id {
        turn.of_others()
    } else {
        turn
    };
    for (question, resume) in questions.iter().zip(resume) {
        answer_interrupt(by, &turn.session, *question, resume).await?;
    }
    Ok(respond_to(
        gateway,
        by,
        turn,
        input,
        Begin {
            received_until: Some(question),
            ..Begin::default()
        },
    ))
}

async fn answer_interrupt(
    by: &Authorized<CanPrompt>,
    session: &SessionHandle,
    question: QuestionId,
    resume: &Resume,
) -> Result<(), ApiError> {
    let request = question.request;
    let pending = match session.pending(request).await {
        Ok(pending) => pending,
        Err(AnswerError::NotFound(_) | AnswerError::Resolved(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let payload = resume.payload.clone().unwrap_or(Value::Null);
    let cancelled = resume.status == "cancelled";
    if pending.method == method::SESSION_REQUEST_PERMISSION && !cancelled {
        let option = payload["optionId"].as_str();
        let Some(approved) = payload["approved"]
            .as_bool()
            .or_else(|| option.map(|_| true))
        else {
            return Err(ApiError::invalid(
                "/resume",
                "expected a payload with approved or optionId",
            ));
        };
        let reason = option
            .or_else(|| payload["reason"].as_str())
            .map(ToOwned::to_owned);
        return answer(
            by,
            session,
            &Approval {
                question,
                approved,
                reason,
            },
        )
        .await;
    }
    if !by.scopes.contains(Scope::Approve) {
        return Err(AccessError::MissingScope(Scope::Approve).into());
    }
    let answer = match (pending.method.as_str(), cancelled) {
        (method::SESSION_REQUEST_PERMISSION, _) => Answer::Cancelled,
        (_, true) => Answer::Elicitation(
            to_raw_value(&json!({ "action": "cancel" })).map_err(ApiError::internal)?,
        ),
        (_, false) => {
            let result = json!({ "action": "accept", "content": payload });
            Answer::Elicitation(to_raw_value(&result).map_err(ApiError::internal)?)
        }
    };
    match session.answer(&by.author(), None, request, answer).await {
        Ok(()) | Err(AnswerError::Resolved(_) | AnswerError::NotFound(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The state of the client at the start of its run.
#[derive(Default)]
struct Begin {
    /// The messages that it lacks.
    history: Vec<Value>,
    /// It has the events up to this request of the agent.
    received_until: Option<RequestId>,
}

fn respond_to(
    gateway: &Gateway,
    by: &Authorized<CanPrompt>,
    turn: ChatTurn,
    input: &RunInput,
    Begin {
        history,
        received_until,
    }: Begin,
) -> Response {
    let run = Run {
        thread: input.thread_id.clone(),
        id: input.run_id.clone(),
        knows_cancelled: input.knows_cancelled(),
        session: turn.session.id(),
        prompt: turn.prompt,
        notices: turn.notices.clone(),
        history,
    };
    let connected = turn.cancel_on_disconnect(gateway);
    let encoder = TurnEncoder::new(RunWriter::new(run));
    let encoder = encoder
        .after(received_until)
        .cancels_on_disconnect(Some(connected));
    respond(gateway, by, turn, encoder, true)
}
