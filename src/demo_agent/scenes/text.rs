//! Scenes that consist only of text.

use super::super::commands;
use super::super::text::number;
use super::super::turn::{Step, Turn};

const MARKDOWN: &str = r#"# A heading

Text can be **bold**, *italic*, ~~struck~~ or `code`, with [a link](https://agentclientprotocol.com) and an
autolink: <https://jsonrpc.org>.

## Lists

1. First
2. Second
   - nested, with *emphasis*
   - and `code`
3. Third

- [x] a task that is done
- [ ] one that is not

## Code

```rust
/// Adds two numbers.
fn add(a: u64, b: u64) -> u64 {
    a + b // <- not HTML
}
```

```diff
- old line
+ new line
```

## A table

| Event | When | Count |
| :--- | :---: | ---: |
| `prompt.started` | first | 1 |
| `session.update` | then | many |
| `prompt.completed` | last | 1 |

> A quotation,
> on two lines.

---

Emoji 🎈, right-to-left שלום, wide 漢字, and HTML that must stay text: <script>alert("no")</script>
<img src="x" onerror="alert('no')">
"#;

const HELP: &str = "I am a demo: I have no model. `/read`, `/write`, `/run` and `/timeout` really read, write and run, through \
your client and after asking you. All other commands change nothing on your machine.\n\n";

const HELP_END: &str =
    "\nPace and answer length are options of the session. Its mode decides when I ask for permission.\n";

const PARAGRAPHS: [&str; 4] = [
    "A gateway connects programs with different protocols. On one side are agents, which read lines from stdin \
     and write lines to stdout. On the other side are browsers and scripts, which use HTTP. ",
    "The gateway writes the output of an agent to a log before it shows the output. Every reader has its own \
     position in that log. A reader that disconnects does not affect the log. ",
    "This is useful for long answers. You can close the page now and open it again on another machine. Then \
     continue at the end, at the beginning, or after the last word that you saw. ",
    "A slow reader costs the gateway nothing, and a fast agent waits for no reader: the log is a file between them. ",
];

pub(super) async fn help(turn: &mut Turn) -> Step {
    let table = commands::table();
    turn.say(HELP).await?;
    turn.say(&table).await?;
    turn.say(HELP_END).await
}

pub(super) async fn markdown(turn: &mut Turn) -> Step {
    turn.say(MARKDOWN).await
}

pub(super) async fn long(turn: &mut Turn, input: &str) -> Step {
    let count = number(input, 20, 200);
    for (at, text) in (1..=count).zip(PARAGRAPHS.iter().cycle()) {
        turn.say(&format!("**{at} of {count}.** ")).await?;
        turn.say(text).await?;
        turn.say("\n\n").await?;
    }
    Ok(())
}
