//! A subagent: a separate session whose updates use the same connection.

use agent_client_protocol_schema::v1::{
    ContentChunk, IdleStateUpdate, IdleStopReason, MessageId, RunningStateUpdate, SessionId, SessionMessage,
    SessionMessageChunk, SessionUpdate, StateUpdate, SubagentUpdate, ToolCall, ToolCallStatus,
    ToolCallUpdate, ToolKind,
};

use super::super::text::pieces;
use super::super::turn::{Step, Turn};
use super::work;

const TASK: &str = "Find out where the greeting is made.";
const RESULT: &str = "The greeting is made in src/greeting.rs, in the second line.";

pub(super) async fn subagent(turn: &mut Turn) -> Step {
    if !turn.offer.subagents {
        return turn.say("Your client did not offer to show subagents, so I show none.").await;
    }
    let number = turn.record().number();
    let (parent, cwd) = {
        let record = turn.record();
        (record.session_id.clone(), record.place.cwd.clone())
    };
    let child = SessionId::new(format!("{parent}-child-{number}"));
    let state = |state| SessionUpdate::SubagentUpdate(SubagentUpdate::new(child.clone()).state(state));

    turn.say("I ask a subagent.\n\n").await?;
    let about = SubagentUpdate::new(child.clone())
        .title("Scout".to_owned())
        .description("Looks for things, and changes nothing".to_owned())
        .cwd(cwd)
        .state(StateUpdate::Running(RunningStateUpdate::new()));
    turn.act(SessionUpdate::SubagentUpdate(about)).await?;
    let sent = MessageId::new(format!("to-{number}"));
    let message = SessionMessage::new(sent).recipient_session_id(child.clone()).content(vec![TASK.into()]);
    turn.act(SessionUpdate::SessionMessage(message)).await?;

    work_as(turn, &child).await?;

    let back = MessageId::new(format!("from-{number}"));
    let message = SessionMessage::new(back.clone()).sender_session_id(child.clone());
    turn.act(SessionUpdate::SessionMessage(message)).await?;
    let chunk = SessionMessageChunk::new(back, RESULT.into());
    turn.act(SessionUpdate::SessionMessageChunk(chunk)).await?;
    let idle = IdleStateUpdate::new().stop_reason(IdleStopReason::EndTurn);
    turn.act(state(StateUpdate::Idle(idle))).await?;
    turn.say("The subagent says that the greeting is made in `src/greeting.rs`.").await
}

/// The work of the subagent: it thinks, uses a tool, and answers.
async fn work_as(turn: &mut Turn, child: &SessionId) -> Step {
    let chunk = |text: &str, message: &'static str| {
        ContentChunk::new(text.into()).message_id(MessageId::new(message))
    };
    for piece in pieces("I look for the word first.") {
        turn.act_as(child, SessionUpdate::AgentThoughtChunk(chunk(piece, "m1"))).await?;
    }
    let search = ToolCall::new("call_1", "Search for \"greet\"")
        .kind(ToolKind::Search)
        .status(ToolCallStatus::InProgress);
    turn.act_as(child, SessionUpdate::ToolCall(search)).await?;
    let found = ToolCallUpdate::new("call_1", work::done("src/greeting.rs:2"));
    turn.act_as(child, SessionUpdate::ToolCallUpdate(found)).await?;
    for piece in pieces(RESULT) {
        turn.act_as(child, SessionUpdate::AgentMessageChunk(chunk(piece, "m2"))).await?;
    }
    Ok(())
}
