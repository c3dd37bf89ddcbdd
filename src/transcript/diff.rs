//! A line diff for display, with a few lines of context.

/// Unchanged lines that are shown on each side.
const CONTEXT: usize = 3;

/// Returns lines prefixed with ` `, `-` or `+`. The common beginning and end of the texts are omitted. All
/// old lines precede all new lines, which is correct because an agent's edit changes one place.
pub fn lines(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let most = old.len().min(new.len()) - head;
    let tail = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take(most)
        .take_while(|(a, b)| a == b)
        .count();
    let before = &old[head.saturating_sub(CONTEXT)..head];
    let after = &old[old.len() - tail..][..tail.min(CONTEXT)];
    let parts = [
        (' ', before),
        ('-', &old[head..old.len() - tail]),
        ('+', &new[head..new.len() - tail]),
        (' ', after),
    ];
    parts
        .into_iter()
        .flat_map(|(sign, part)| part.iter().map(move |line| format!("{sign}{line}\n")))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn change_is_shown_with_context() {
        assert_eq!(
            lines(
                "1\n2\n3\n4\n5\nold\n6\n7\n8\n9\n",
                "1\n2\n3\n4\n5\nnew\n6\n7\n8\n9\n"
            ),
            " 3\n 4\n 5\n-old\n+new\n 6\n 7\n 8\n"
        );
        assert_eq!(lines("", "a\nb"), "+a\n+b\n");
        assert_eq!(lines("a\n", ""), "-a\n");
        assert_eq!(lines("a\na\n", "a\na\na\n"), " a\n a\n+a\n");
        assert_eq!(lines("", ""), "");
    }

    proptest! {
        #[test]
        fn every_changed_line_is_shown(old in "[ab\n]{0,30}", new in "[ab\n]{0,30}") {
            let shown = lines(&old, &new);
            let count = |sign| shown.lines().filter(|line| line.starts_with(sign)).count();
            let (olds, news) = (old.lines().count(), new.lines().count());
            prop_assert_eq!(olds - count('-'), news - count('+'), "omitted lines are common to both texts");
            prop_assert!(olds != 0 || news == count('+'));
        }
    }
}
