//! Turns that take time, to test a client: long and slow answers, parts that can be cancelled alone, a message
//! that is replaced, and work after the turn.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::super::text::number;
use super::super::turn::{Step, Turn, tool_call_update};
use super::commands::SCENES;

pub(super) async fn long(turn: &mut Turn, input: &str) -> Step {
    let count = number(input, 20, 200);
    for (at, text) in (1..=count).zip(SCENES.paragraphs.iter().cycle()) {
        turn.say(&format!("**{at} of {count}.** {text}\n\n"))
            .await?;
    }
    Ok(())
}

/// Sends a tick each second. The pace does not change it.
pub(super) async fn slow(turn: &mut Turn, input: &str) -> Step {
    let seconds = number(input, 30, 600);
    turn.say(&format!(
        "This takes {seconds} seconds. Cancel it whenever you like.\n\n"
    ))
    .await?;
    for second in 1..=seconds {
        turn.wait(Duration::from_secs(1)).await?;
        turn.say(&format!("{second} ")).await?;
    }
    turn.say("\n\nDone.").await
}

/// Sends a text and then replaces it.
pub(super) async fn correct(turn: &mut Turn) -> Step {
    const CORRECTED: &str = "The capital of Australia is Canberra.";
    let message = turn.new_message();
    turn.say("The capital of Australia is Sydney.").await?;
    turn.pause(40).await?;
    turn.check()?;
    turn.record().history.replace(&message, CORRECTED);
    let content = json!([{ "type": "text", "text": CORRECTED }]);
    turn.show(
        json!({ "sessionUpdate": "agent_message", "messageId": message, "content": content }),
    )
    .await;
    turn.say(" (I had said Sydney first.)").await
}

/// The turn ends, and later the agent works again without a prompt.
pub(super) async fn start_background_work(turn: &mut Turn, input: &str) -> Step {
    let seconds = number(input, 5, 600);
    turn.background_work_after = Some(Duration::from_secs(seconds.into()));
    turn.say(&format!(
        "This turn ends now. In {seconds} s I work again, and nobody has to ask me."
    ))
    .await
}

/// `tool` or `terminal`, and its duration: a part of the turn that can be cancelled by itself.
pub(super) async fn part(turn: &mut Turn, input: &str) -> Step {
    let (kind, seconds) = input.split_once(char::is_whitespace).unwrap_or((input, ""));
    let seconds = number(seconds.trim(), 30, 600);
    turn.say(&format!(
        "One part of this turn takes {seconds} s. Cancel it, and the turn continues.\n\n"
    ))
    .await?;
    let cancelled = if kind == "terminal" {
        terminal(turn, seconds).await?
    } else {
        tool_call(turn, seconds).await?
    };
    turn.say(if cancelled {
        "It was cancelled, and I continue."
    } else {
        "Nobody cancelled it."
    })
    .await
}

/// Returns true if the tool call was cancelled.
async fn tool_call(turn: &mut Turn, seconds: u32) -> Step<bool> {
    let call = turn
        .call(&json!({ "title": "Take some time", "status": "in_progress" }))
        .await?;
    let part = turn.session().part(&call);
    turn.show(tool_call_update(
        &call,
        json!({ "capabilities": { "cancel": {} } }),
    ))
    .await;
    let cancelled = turn
        .wait_for_part(&part, Duration::from_secs(seconds.into()))
        .await;
    turn.session().end_part(&call);
    if cancelled? {
        turn.call_cancelled(&call).await;
        return Ok(true);
    }
    turn.show(tool_call_update(&call, json!({ "capabilities": null })))
        .await;
    turn.progress(&call, json!({ "status": "completed" }))
        .await?;
    Ok(false)
}

/// Returns true if the terminal was cancelled.
async fn terminal(turn: &mut Turn, seconds: u32) -> Step<bool> {
    let terminal = turn
        .begin_display(&format!("sleep {seconds}"), true)
        .await?;
    let part = turn.session().part(&terminal);
    let cancelled = tick(turn, &terminal, &part, seconds).await;
    turn.session().end_part(&terminal);
    let cancelled = cancelled?;
    let status = if cancelled {
        json!({ "signal": "SIGTERM" })
    } else {
        json!({ "exitCode": 0 })
    };
    turn.end_display(&terminal, status).await;
    Ok(cancelled)
}

async fn tick(
    turn: &mut Turn,
    terminal: &str,
    part: &CancellationToken,
    seconds: u32,
) -> Step<bool> {
    for second in 1..=seconds {
        if turn.wait_for_part(part, Duration::from_secs(1)).await? {
            return Ok(true);
        }
        turn.grow_display(terminal, &format!("{second}\n")).await?;
    }
    Ok(false)
}
