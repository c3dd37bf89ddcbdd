//! The scenes of the demo. The prompt selects one: a command by its name, otherwise the tour or a scene that
//! matches the words.

mod chat;
mod files;
mod form;
mod memory;
mod only_v2;
mod questions;
mod subagent;
mod terminals;
mod text;
mod trouble;
mod updates;
mod work;

use agent_client_protocol_schema::v1::{ContentBlock, Error, Meta, StopReason, Usage};

use super::commands::Command;
use super::options::{Choice as _, Mode, Pace};
use super::prompt::Prompt;
use super::text::quoted;
use super::turn::{Step, StepError, Turn};

/// Plays the turn with this number until its end. Returns the stop reason and the usage.
pub(super) async fn play(
    turn: &mut Turn,
    blocks: &[ContentBlock],
    number: u64,
    meta: Option<&Meta>,
) -> Result<(StopReason, Usage), Error> {
    let prompt = Prompt::new(blocks);
    let played = scene(turn, &prompt, number, meta).await;
    let told = turn.end(&prompt).await;
    let reason = played.and_then(|reason| told.map(|()| reason)).or_else(ended)?;
    Ok((reason, turn.usage()))
}

/// Plays the work that the agent does without a prompt.
pub(super) async fn play_background_work(turn: &mut Turn) -> Result<(StopReason, Usage), Error> {
    let reason = only_v2::background_message(turn).await.map(|()| StopReason::EndTurn).or_else(ended)?;
    Ok((reason, turn.usage()))
}

fn ended(stop: StepError) -> Result<StopReason, Error> {
    match stop {
        StepError::Cancelled => Ok(StopReason::Cancelled),
        StepError::Failed(error) => Err(error),
    }
}

async fn scene(turn: &mut Turn, prompt: &Prompt, number: u64, meta: Option<&Meta>) -> Step<StopReason> {
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
        Command::Withdraw => questions::withdraw(turn, input).await?,
        Command::Form => form::form(turn, input).await?,
        Command::Link => form::link(turn).await?,
        Command::Read => files::read(turn, input).await?,
        Command::Write => files::write(turn, input).await?,
        Command::Run => terminals::run(turn, input).await?,
        Command::Timeout => terminals::timeout(turn, input).await?,
        Command::Plans => updates::plans(turn).await?,
        Command::Notice => updates::notice(turn, input).await?,
        Command::Compact => updates::compact(turn, input).await?,
        Command::Subagent => subagent::subagent(turn).await?,
        Command::Content => updates::content(turn).await?,
        Command::Title => updates::title(turn, input).await?,
        Command::Late => updates::late(turn).await?,
        Command::Part => only_v2::part(turn, input).await?,
        Command::Correct => only_v2::correct(turn).await?,
        Command::Wake => only_v2::start_background_work(turn, input).await?,
        Command::Extension => questions::extension(turn).await?,
        Command::Remember => memory::remember(turn, input).await?,
        Command::Recall => memory::recall(turn).await?,
        Command::About => memory::about(turn, meta).await?,
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
    turn.say(&format!("The pace is **{}** now, and I notified your client.", pace.name())).await
}

async fn mode(turn: &mut Turn, input: &str) -> Step {
    let Some(mode) = Mode::from_id(input) else {
        return turn.say("The mode is one of `ask`, `auto` and `plan`.").await;
    };
    turn.set_mode(mode).await?;
    turn.say(&format!("The mode is **{}** now, and I notified your client.", mode.name())).await
}
