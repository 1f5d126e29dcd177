//! Names as they fit in a line, for windows and lines of text alike.

/// A name of at most `max` characters, shortened in the middle: the ends tell sites apart.
pub fn shorten(name: &str, max: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= max || max < 5 {
        return name.to_owned();
    }
    let tail = (max - 1) * 3 / 5;
    let head = max - 1 - tail;
    let (first, last) = (&letters[..head], &letters[letters.len() - tail..]);
    first.iter().chain(['…'].iter()).chain(last).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_both_ends() {
        assert_eq!(shorten("net.layers.0.fmb.mlp.0", 40), "net.layers.0.fmb.mlp.0");
        let short = shorten("net.layers.0.fmb.mlp.0", 14);
        assert_eq!((short.chars().count(), short.as_str()), (14, "net.la…b.mlp.0"));
    }
}
