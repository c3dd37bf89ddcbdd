//! Scenes that consist only of text.

use super::super::commands;
use super::super::turn::{Step, Turn};
use super::number;

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

const HELP: &str = "I am a demo: I have no model. `/read`, `/write`, `/run` and `/timeout` really do what they say, through \
your client and after asking you; everything else touches nothing on your machine.\n\n";

const HELP_END: &str =
    "\nPace and answer length are options of the session; its mode says when I ask for permission.\n";

const PARAGRAPHS: [&str; 4] = [
    "A gateway stands between programs that speak differently. On one side are agents, which read lines from stdin \
     and write lines to stdout; on the other are browsers and scripts, which speak HTTP. ",
    "What an agent says is written down first and shown afterwards. A reader has a place in that log, as a bookmark \
     has a place in a book; when the reader goes away the book stays open. ",
    "Long answers are where this pays. You may close the page now, open it again from another machine, and read on \
     where the agent is, from the beginning or from the last word you saw. ",
    "Slow readers cost nothing here, and fast agents wait for nobody: between them is a file, and files are patient. ",
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
