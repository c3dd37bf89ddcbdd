//! Turns that take long or fail, to test a client.

use std::io::Write as _;
use std::time::Duration;

use agent_client_protocol_schema::v1::{Error, StopReason, ToolCall, ToolKind};

use super::super::text::number;
use super::super::turn::{Step, StepError, Turn};
use super::work;

/// The exit code of `/crash`.
const CRASH_CODE: i32 = 42;

const CRASH_MESSAGE: &str = "The process of this agent ends now, in the middle of the turn. Send another message: the \
gateway starts a new process, and the session continues.";

/// Sends a tick each second. The pace does not change it.
pub(super) async fn slow(turn: &mut Turn, input: &str) -> Step {
    let seconds = number(input, 30, 600);
    turn.say(&format!("This takes {seconds} seconds. Cancel it whenever you like.\n\n")).await?;
    for second in 1..=seconds {
        turn.wait(Duration::from_secs(1)).await?;
        turn.say(&format!("{second} ")).await?;
    }
    turn.say("\n\nDone.").await
}

pub(super) async fn fail(turn: &mut Turn, input: &str) -> Step<StopReason> {
    match input {
        "tool" => {
            let call =
                turn.call(ToolCall::new("", "Fetch https://example.invalid/").kind(ToolKind::Fetch)).await?;
            turn.pause(10).await?;
            turn.progress(&call, work::failed("The host does not exist.")).await?;
            turn.say("The tool failed, and the turn continues, as it should.").await?;
            Ok(StopReason::EndTurn)
        }
        "refusal" => {
            turn.say("I will not do that. (The turn ends with `refusal`, as you asked.)").await?;
            Ok(StopReason::Refusal)
        }
        "max_tokens" => {
            turn.say("This answer ends in the middle of a").await?;
            Ok(StopReason::MaxTokens)
        }
        "max_turn_requests" => {
            turn.say("I asked the model too often. (There is none, but this is how it ends.)").await?;
            Ok(StopReason::MaxTurnRequests)
        }
        _ => {
            turn.say("This turn ends with an error, as you asked.").await?;
            Err(StepError::Failed(Error::internal_error().data("the demo agent failed, as requested")))
        }
    }
}

pub(super) async fn crash(turn: &mut Turn) -> Step {
    turn.say(CRASH_MESSAGE).await?;
    // The output must leave the process before its end.
    turn.wait(Duration::from_millis(100)).await?;
    drop(writeln!(std::io::stderr(), "demo agent: ended by /crash"));
    std::process::exit(CRASH_CODE);
}
