//! The scenes of the demo. The prompt selects one: a command by its name, otherwise the tour or a scene that
//! matches the words. A command is a script in `scenes.json`, or a function if it needs decisions.

mod commands;
mod files;
mod requests;
mod script;
mod session;
mod terminals;
mod timed;

use agent_client_protocol_schema::v1::Error;
use serde_json::{Value, json};

use super::prompt::Prompt;
use super::text::quoted;
use super::turn::{Step, Turn};
use commands::{Command, SCENES};
use script::Player;

/// The commands in the form of v1.
pub(super) fn available_commands() -> Vec<Value> {
    let command = |command: &Command| {
        let mut listed = json!({ "name": command.name, "description": command.description });
        if let Some(hint) = &command.hint {
            listed["input"] = json!({ "hint": hint });
        }
        listed
    };
    SCENES.commands.iter().map(command).collect()
}

/// Plays the turn with this number until its end. Returns the stop reason and the usage.
pub(super) async fn play(
    turn: &mut Turn,
    blocks: &[Value],
    number: u64,
    meta: &Value,
) -> Result<(&'static str, Value), Error> {
    let prompt = Prompt::new(blocks);
    let played = scene(turn, &prompt, number, meta).await;
    turn.end(played, &prompt.text).await
}

/// Plays the work that the agent does without a prompt.
pub(super) async fn play_background_work(turn: &mut Turn) -> Result<(&'static str, Value), Error> {
    let played = turn.say("I am working again, without a prompt.").await;
    turn.end(played, "").await
}

async fn scene(turn: &mut Turn, prompt: &Prompt, number: u64, meta: &Value) -> Step {
    let Some((name, input)) = prompt.command() else {
        return answer(&mut Player::new(turn, prompt), prompt, number).await;
    };
    let Some(command) = SCENES.command(name) else {
        turn.say(&format!(
            "I do not know {}. This is what I know:\n\n",
            quoted(&prompt.text, 40)
        ))
        .await?;
        return Player::new(turn, prompt).command("help").await;
    };
    if command
        .needs
        .as_ref()
        .is_some_and(|capability| !turn.client.offers(capability))
    {
        return turn.say(&command.refusal).await;
    }
    match name {
        "withdraw" => requests::withdraw(turn, input).await,
        "form" => requests::form(turn, input).await,
        "link" => requests::link(turn).await,
        "read" => files::read(turn, input).await,
        "write" => files::write(turn, input).await,
        "run" => terminals::run(turn, input).await,
        "timeout" => terminals::timeout(turn, input).await,
        "title" => session::title(turn, input).await,
        "part" => timed::part(turn, input).await,
        "correct" => timed::correct(turn).await,
        "wake" => timed::start_background_work(turn, input).await,
        "ext" => requests::extension(turn).await,
        "remember" => session::remember(turn, input).await,
        "recall" => session::recall(turn).await,
        "about" => session::about(turn, meta).await,
        "long" => timed::long(turn, input).await,
        "slow" => timed::slow(turn, input).await,
        "pace" | "mode" => session::set_option(turn, name, input).await,
        _ => {
            Player::new(turn, prompt)
                .play(command.cases.get(input).unwrap_or(&command.steps))
                .await
        }
    }
}

/// Answers a plain message: first with the tour, later with a scene that matches the words.
async fn answer(player: &mut Player<'_>, prompt: &Prompt, number: u64) -> Step {
    const TOPICS: [(&[&str], &str); 3] = [
        (
            &[
                "edit", "change", "fix", "write", "add", "rename", "refactor", "diff",
            ],
            "diff",
        ),
        (
            &["run", "test", "tests", "build", "command", "terminal"],
            "terminal",
        ),
        (&["plan", "steps"], "plan"),
    ];
    if number == 1 {
        return player.command("tour").await;
    }
    let text = prompt.text.to_lowercase();
    let words: Vec<&str> = text
        .split(|letter: char| !letter.is_alphanumeric())
        .collect();
    let has_one_of = |topic: &[&str]| words.iter().any(|word| topic.contains(word));
    if let Some((_, command)) = TOPICS.iter().find(|(topic, _)| has_one_of(topic)) {
        player.part("acknowledge").await?;
        return player.command(command).await;
    }
    if has_one_of(&["help", "commands"]) {
        return player.command("help").await;
    }
    player.part("small talk").await
}
