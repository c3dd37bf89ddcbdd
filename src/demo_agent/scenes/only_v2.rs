//! Features of ACP v2 only: parts that can be cancelled alone, replaced messages, and work without a prompt.

use std::time::Duration;

use super::super::text::number;
use super::super::turn::{Step, Turn};
use super::super::version::Version;

const OLDER: &str = "ACP v1 does not have this feature. Set `protocol = 2` in my entry of the gateway's configuration, and try \
again in a new session.";

/// `tool` or `terminal`, and its duration.
pub(super) async fn part(turn: &mut Turn, input: &str) -> Step {
    if turn.version() == Version::V1 {
        return turn.say(OLDER).await;
    }
    let (what, seconds) = input.split_once(char::is_whitespace).unwrap_or((input, ""));
    let seconds = number(seconds.trim(), 30, 600);
    turn.say(&format!("One part of this turn takes {seconds} s. Cancel it, and the turn continues.\n\n"))
        .await?;
    let limit = Duration::from_secs(seconds.into());
    let cancelled =
        if what == "terminal" { turn.long_terminal(limit).await? } else { turn.long_call(limit).await? };
    turn.say(if cancelled { "It was cancelled, and I continue." } else { "Nobody cancelled it." }).await
}

/// Sends a text and then replaces it.
pub(super) async fn correct(turn: &mut Turn) -> Step {
    if turn.version() == Version::V1 {
        return turn.say(OLDER).await;
    }
    let message = turn.new_message();
    turn.say("The capital of Australia is Sydney.").await?;
    turn.pause(40).await?;
    turn.replace(&message, "The capital of Australia is Canberra.").await?;
    turn.say(" (I had said Sydney first.)").await
}

/// The turn ends, and later the agent works again without a prompt.
pub(super) async fn start_background_work(turn: &mut Turn, input: &str) -> Step {
    if turn.version() == Version::V1 {
        return turn.say(OLDER).await;
    }
    let seconds = number(input, 5, 600);
    turn.afterword.background_work_after = Some(Duration::from_secs(seconds.into()));
    turn.say(&format!("This turn ends now. In {seconds} s I work again, and nobody has to ask me.")).await
}

/// The message of the work without a prompt.
pub(in super::super) async fn background_message(turn: &mut Turn) -> Step {
    turn.say("I am working again, without a prompt.").await
}
