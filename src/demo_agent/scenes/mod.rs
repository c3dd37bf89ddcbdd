//! What the demo plays, chosen by the prompt: a command by its name, else the tour or a scene that fits the words.

mod chat;
mod text;
mod trouble;
mod work;

use agent_client_protocol_schema::v1::{ContentBlock, CurrentModeUpdate, Error, SessionUpdate, StopReason};

use super::commands::Command;
use super::options::{Choice as _, Mode, Pace};
use super::prompt::Prompt;
use super::text::quoted;
use super::turn::{Step, Stop, Turn};

/// Plays a turn to its end, whatever ends it.
pub(super) async fn play(mut turn: Turn, blocks: &[ContentBlock]) -> Result<StopReason, Error> {
    let prompt = Prompt::new(blocks);
    let number = match turn.begin(blocks) {
        Ok(number) => number,
        Err(Stop::Failed(error)) => return Err(error),
        Err(Stop::Cancelled) => return Ok(StopReason::Cancelled),
    };
    let played = scene(&mut turn, &prompt, number).await;
    let ended = turn.end(&prompt).await;
    match played.and_then(|reason| ended.map(|()| reason)) {
        Ok(reason) => Ok(reason),
        Err(Stop::Cancelled) => Ok(StopReason::Cancelled),
        Err(Stop::Failed(error)) => Err(error),
    }
}

async fn scene(turn: &mut Turn, prompt: &Prompt, number: u64) -> Step<StopReason> {
    let Some((name, input)) = prompt.command() else {
        chat::answer(turn, prompt, number).await?;
        return Ok(StopReason::EndTurn);
    };
    let Some(command) = Command::from_name(name) else {
        let unknown = format!("I do not know {}. This is what I know:\n\n", quoted(&prompt.text, 40));
        turn.say(&unknown).await?;
        text::help(turn).await?;
        return Ok(StopReason::EndTurn);
    };
    match command {
        Command::Help => text::help(turn).await?,
        Command::Tour => chat::tour(turn, prompt).await?,
        Command::Plan => work::plan(turn).await?,
        Command::Diff => work::edit(turn).await?,
        Command::Terminal => work::terminal(turn).await?,
        Command::Permission => work::permission(turn).await?,
        Command::Markdown => text::markdown(turn).await?,
        Command::Long => text::long(turn, input).await?,
        Command::Slow => trouble::slow(turn, input).await?,
        Command::Pace => pace(turn, input).await?,
        Command::Mode => mode(turn, input).await?,
        Command::Fail => return trouble::fail(turn, input).await,
        Command::Crash => trouble::crash(turn).await?,
    }
    Ok(StopReason::EndTurn)
}

async fn pace(turn: &mut Turn, input: &str) -> Step {
    let Some(pace) = Pace::from_id(input) else {
        return turn.say("The pace is one of `instant`, `brisk`, `natural` and `leisurely`.").await;
    };
    let mut options = turn.options();
    options.pace = pace;
    turn.set_options(options).await?;
    turn.say(&format!("The pace is **{}** now; your client was told about it.", pace.name())).await
}

async fn mode(turn: &mut Turn, input: &str) -> Step {
    let Some(mode) = Mode::from_id(input) else {
        return turn.say("The mode is one of `ask`, `auto` and `plan`.").await;
    };
    turn.set_mode(mode, SessionUpdate::CurrentModeUpdate(CurrentModeUpdate::new(mode.id()))).await?;
    turn.say(&format!("The mode is **{}** now; your client was told about it.", mode.name())).await
}

/// A number in a range out of a command's input.
fn number(input: &str, default: u32, max: u32) -> u32 {
    input.parse().unwrap_or(default).clamp(1, max)
}
