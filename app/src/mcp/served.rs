//! The address of a served session, as a person copies it from `loka serve` or from a browser: takes a link, gives where to
//! go and what to show there.

use percent_encoding::percent_decode_str;
use tokio_tungstenite::tungstenite::http::Uri;

/// Where a window would talk to its session.
#[derive(Clone, PartialEq, Eq)]
pub struct Served {
    pub secure: bool,
    /// An IPv6 address without its brackets.
    pub host: String,
    pub port: u16,
    /// As a `Host` header has it.
    pub authority: String,
    pub token: Option<String>,
    /// Of a served folder.
    pub trace: Option<String>,
}

impl Served {
    /// `token`: of a file; it goes before one in the link.
    pub fn parse(link: &str, token: Option<String>) -> Result<Self, String> {
        let wrong = |why: &str| format!("{why}: {}", without_token(link));
        let uri: Uri = link.parse().map_err(|_| wrong("not an address"))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("an address begins with http:// or https://")),
        };
        let authority = uri.authority().filter(|of| !of.as_str().contains('@') && !of.host().is_empty());
        let authority = authority.ok_or_else(|| wrong("not an address of a server"))?;
        let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
        if !port.is_empty() && authority.port_u16().is_none() {
            return Err(wrong("no port of a server"));
        }
        if !matches!(uri.path(), "" | "/") {
            return Err(wrong("a served workbench has no path, as in http://127.0.0.1:7878"));
        }
        let asked = |key: &str| {
            let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
            let (_, value) = pairs.into_iter().find(|(name, _)| *name == key)?;
            let value = value.replace('+', " ");
            percent_decode_str(&value).decode_utf8().ok().map(|value| value.into_owned())
        };
        Ok(Self {
            secure,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            token: token.or_else(|| asked("token")).filter(|token| !token.is_empty()),
            trace: asked("trace").filter(|trace| !trace.is_empty()),
        })
    }

    /// For a person: no token in it.
    pub fn address(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }
}

fn without_token(link: &str) -> &str {
    link.split(['?', '#']).next().unwrap_or_default()
}

/// Never in a log.
impl std::fmt::Debug for Served {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_says_where_and_what() {
        let of = |link: &str| Served::parse(link, None).unwrap();
        let plain = of("http://127.0.0.1:7878");
        assert_eq!((plain.secure, plain.host.as_str(), plain.port, plain.token), (false, "127.0.0.1", 7878, None));
        let link = of("http://localhost:80/?token=abc-DEF_1.~&trace=a%20b.trace.safetensors&name=Anna");
        assert_eq!(
            (link.token.as_deref(), link.trace.as_deref()),
            (Some("abc-DEF_1.~"), Some("a b.trace.safetensors"))
        );
        let secure = of("https://loka.example");
        assert_eq!((secure.secure, secure.port, secure.authority.as_str()), (true, 443, "loka.example"));
        let six = of("http://[::1]:7878/");
        assert_eq!((six.host.as_str(), six.authority.as_str()), ("::1", "[::1]:7878"));
        let of_file = Served::parse("http://h/?token=inthelink", Some("ofafile".to_owned())).unwrap();
        assert_eq!(of_file.token.as_deref(), Some("ofafile"));
    }

    #[test]
    fn what_is_no_address_is_a_line_without_the_token() {
        for link in ["", "127.0.0.1:7878", "ftp://h", "http://", "http://a@b", "http://h/page", "http://h:99999", "h t"]
        {
            let line = Served::parse(&format!("{link}?token=secret"), None).unwrap_err();
            assert!(!line.contains("secret") && !line.contains('\n'), "{link}: {line}");
        }
        assert_eq!(format!("{:?}", Served::parse("http://h/?token=secret", None).unwrap()), "http://h");
    }
}
