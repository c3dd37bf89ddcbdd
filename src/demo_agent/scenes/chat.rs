//! The answer to a plain message: first an introduction, later a scene that matches the words.

use super::super::options::Length;
use super::super::prompt::Prompt;
use super::super::text::{one_line, quoted};
use super::super::turn::{Step, Turn};
use super::{text, work};

/// The maximum number of characters of the user's message that the answer repeats.
const MAX_QUOTE_CHARS: usize = 120;

const STEPS: [&str; 4] = ["Read the message", "Look around in the workspace", "Run the tests", "Answer"];

const INTRODUCTION: &str = "I am the **demo agent** that is built into acp-gateway. There is no model behind me: \
my answers are fixed texts, my tools are simulated, and I do not change your files. But the path is real: \
these words are ACP messages from an agent's process. The gateway wrote them to its log and sent them to you as \
events.\n\n";

const NO_MODEL: &str = "A model could answer that. I am only the demo agent, but I can show you \
other things.\n\n";

const NEXT: &str = "Things to try:\n\n\
- `/diff` edits a file and **asks for your permission** first; `/plan` shows steps that change while they run.\n\
- `/slow` runs for a while: press stop, or reload the page during the turn. Nothing is lost.\n\
- `/markdown` shows the formatting of answers, `/help` lists all commands.\n\n";

const REAL_AGENT: &str = "To use a real agent, add a table to the gateway's configuration, for example in \
`gateway.toml`:\n\n\
```toml\n[agents.claude]\ncommand = \"npx\"\nargs = [\"-y\", \"@agentclientprotocol/claude-agent-acp\"]\n\
env = { ANTHROPIC_API_KEY = { from_env = \"ANTHROPIC_API_KEY\" } }\n```\n\n\
Then start `acp-gateway --config gateway.toml`.\n";

const BACKGROUND: &str = "\n### How this answer reached you\n\n\
1. The gateway wrote your prompt to the log first, and then sent it to my stdin as `session/prompt`.\n\
2. Each chunk that I write to stdout is one `session/update`. The gateway appends it to the session's log without \
a change.\n\
3. Every reader follows the log from its own position. Therefore a reload, a second tab and a lost connection \
all show the same answer.\n";

pub(super) async fn answer(turn: &mut Turn, prompt: &Prompt, number: u64) -> Step {
    if number == 1 {
        return tour(turn, prompt).await;
    }
    let text = prompt.text.to_lowercase();
    let speaks_of = |words: &[&str]| {
        text.split(|letter: char| !letter.is_alphanumeric()).any(|word| words.contains(&word))
    };
    if speaks_of(&["edit", "change", "fix", "write", "add", "rename", "refactor", "diff"]) {
        acknowledge(turn, prompt).await?;
        return work::edit(turn).await;
    }
    if speaks_of(&["run", "test", "tests", "build", "command", "terminal"]) {
        acknowledge(turn, prompt).await?;
        return work::terminal(turn).await;
    }
    if speaks_of(&["plan", "steps"]) {
        acknowledge(turn, prompt).await?;
        return work::plan(turn).await;
    }
    if speaks_of(&["help", "commands"]) {
        return text::help(turn).await;
    }
    small_talk(turn, prompt).await
}

/// Thoughts, a plan, tools and markdown in one turn, without a request that blocks it.
pub(super) async fn tour(turn: &mut Turn, prompt: &Prompt) -> Step {
    turn.think(&thought(prompt)).await?;
    turn.plan(&STEPS, 0).await?;
    turn.pause(6).await?;
    turn.plan(&STEPS, 1).await?;
    work::look_around(turn).await?;
    turn.plan(&STEPS, 2).await?;
    work::tests(turn).await?;
    turn.plan(&STEPS, 3).await?;
    acknowledge(turn, prompt).await?;
    turn.say(INTRODUCTION).await?;
    let length = turn.options().length;
    if length != Length::Short {
        turn.say(NEXT).await?;
    }
    turn.say(REAL_AGENT).await?;
    if length == Length::Long {
        turn.say(BACKGROUND).await?;
    }
    turn.plan(&STEPS, STEPS.len()).await
}

async fn small_talk(turn: &mut Turn, prompt: &Prompt) -> Step {
    turn.think(&thought(prompt)).await?;
    turn.pause(8).await?;
    acknowledge(turn, prompt).await?;
    turn.say(NO_MODEL).await?;
    let length = turn.options().length;
    if length != Length::Short {
        turn.say(NEXT).await?;
    }
    if length == Length::Long {
        turn.say(REAL_AGENT).await?;
        turn.say(BACKGROUND).await?;
    }
    Ok(())
}

fn thought(prompt: &Prompt) -> String {
    if prompt.text.trim().is_empty() {
        return "The message has no text. I answer with what I can show.".to_owned();
    }
    format!(
        "The user writes “{}”. I have no model to think with, so these thoughts are part of the show: \
         an agent's reasoning streams to the client before its answer.",
        one_line(&prompt.text, MAX_QUOTE_CHARS)
    )
}

/// Describes the message of the user.
async fn acknowledge(turn: &mut Turn, prompt: &Prompt) -> Step {
    if !prompt.text.trim().is_empty() && prompt.command().is_none() {
        turn.say(&format!("You wrote {}.\n\n", quoted(&prompt.text, MAX_QUOTE_CHARS))).await?;
    }
    turn.say(&prompt.acknowledgement()).await
}
