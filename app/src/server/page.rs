//! The page: takes the files that are built in, or a folder's, gives each by its name with its type, plain or
//! gzipped. Nothing else of the disk is served.

use std::{
    collections::BTreeMap,
    io::Read as _,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::limits;
use crate::files;

/// Built in when `LOKA_PAGE` named a folder at build time.
static BUILT_IN: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// Whether this build has one.
pub fn is_built_in() -> bool {
    !BUILT_IN.is_empty()
}

/// In the head of `index.html`: where the page learns that a server is behind it.
const MARK: &str = "<!-- loka-serve -->";
/// Where it is told else.
const HEAD: &str = "<head>";
const META: &str = "<meta name=\"loka-serve\" content=\"1\">";
const INDEX: &str = "index.html";

/// By name, without a leading `/`.
#[derive(Debug)]
pub struct Page {
    files: BTreeMap<String, PageFile>,
}

/// Plain, gzipped, or both.
#[derive(Debug, Default)]
pub struct PageFile {
    plain: OnceLock<Bytes>,
    gzipped: Option<Bytes>,
    /// Of its content, without quotes.
    pub etag: String,
    pub content_type: &'static str,
}

impl Page {
    /// A folder's files, else those built in; the line says how to get a page.
    pub fn open(folder: Option<&Path>) -> Result<Self, String> {
        let files = match folder {
            Some(folder) => read(folder)?,
            None => BUILT_IN.iter().map(|(name, bytes)| ((*name).to_owned(), Bytes::from_static(bytes))).collect(),
        };
        if files.is_empty() && folder.is_none() {
            return Err("this build has no page in it: make one with scripts/build_web.sh and name its folder with \
                        --page, or with LOKA_PAGE when LoKA is built"
                .to_owned());
        }
        let page = Self::of(files)?;
        match folder {
            Some(folder) if page.file("").is_none() => Err(format!("no {INDEX} in it: {}", folder.display())),
            _ => Ok(page),
        }
    }

    fn of(files: BTreeMap<String, Bytes>) -> Result<Self, String> {
        let mut page = Self { files: BTreeMap::new() };
        for (name, bytes) in files {
            let (plain_name, is_gzipped) = name.strip_suffix(".gz").map_or((name.as_str(), false), |name| (name, true));
            let file = page.files.entry(plain_name.to_owned()).or_default();
            file.content_type = content_type(plain_name);
            if is_gzipped {
                file.gzipped = Some(bytes);
            } else {
                file.plain = OnceLock::from(bytes);
            }
        }
        if let Some(index) = page.files.get_mut(INDEX) {
            let bytes = index.plain().ok_or_else(|| format!("it cannot be unpacked: {INDEX}.gz"))?;
            *index = PageFile { plain: OnceLock::from(marked(&bytes)), gzipped: None, ..std::mem::take(index) };
        }
        for file in page.files.values_mut() {
            let content = file.plain.get().or(file.gzipped.as_ref()).map(AsRef::as_ref).unwrap_or_default();
            file.etag = Sha256::digest(content).iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        }
        Ok(page)
    }

    /// The entry page has the empty name.
    pub fn file(&self, name: &str) -> Option<&PageFile> {
        self.files.get(if name.is_empty() { INDEX } else { name })
    }
}

impl PageFile {
    /// As it is stored, for whoever takes gzip.
    pub fn gzipped(&self) -> Option<Bytes> {
        self.gzipped.clone()
    }

    /// Unpacked once where only the gzipped one is there. `None`: it cannot be unpacked.
    pub fn plain(&self) -> Option<Bytes> {
        if let Some(plain) = self.plain.get() {
            return Some(plain.clone());
        }
        let mut bytes = Vec::new();
        let packed = self.gzipped.as_ref()?;
        flate2::read::GzDecoder::new(packed.as_ref()).take(limits::PAGE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(self.plain.get_or_init(|| bytes.into()).clone())
    }
}

fn marked(index: &Bytes) -> Bytes {
    let text = String::from_utf8_lossy(index);
    Bytes::from(match text.contains(MARK) {
        true => text.replacen(MARK, META, 1),
        false => text.replacen(HEAD, &format!("{HEAD}\n{META}"), 1),
    })
}

/// The regular files of a folder and those below it.
fn read(folder: &Path) -> Result<BTreeMap<String, Bytes>, String> {
    let failed = |error: &std::io::Error, path: &Path| format!("{}: {}", files::reason(error), path.display());
    let (mut found, mut total) = (BTreeMap::new(), 0);
    let mut folders: Vec<(PathBuf, String)> = vec![(folder.to_owned(), String::new())];
    while let Some((below, prefix)) = folders.pop() {
        for entry in std::fs::read_dir(&below).map_err(|error| failed(&error, &below))? {
            let path = entry.map_err(|error| failed(&error, &below))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.'))
            else {
                continue;
            };
            let name = format!("{prefix}{name}");
            let about = std::fs::symlink_metadata(&path).map_err(|error| failed(&error, &path))?;
            if about.is_dir() {
                folders.push((path, format!("{name}/")));
            } else if about.is_file() {
                total += about.len();
                if found.len() >= limits::PAGE_FILES || total > limits::PAGE_BYTES {
                    return Err(format!("too much in it for a page: {}", folder.display()));
                }
                found.insert(name, std::fs::read(&path).map_err(|error| failed(&error, &path))?.into());
            }
        }
        if folders.len() > limits::PAGE_FILES {
            return Err(format!("too much in it for a page: {}", folder.display()));
        }
    }
    Ok(found)
}

/// By the ending: browsers are told not to guess.
fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, shutdown)| shutdown) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "wasm" => "application/wasm",
        "json" | "webmanifest" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/vnd.microsoft.icon",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        "txt" | "md" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn files_are_found_by_name_plain_and_gzipped() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("snippets")).unwrap();
        let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        put("index.html", b"<head><!-- loka-serve --></head>");
        put("index.html.gz", &gzip("stale"));
        put("loka_bg.wasm.gz", &gzip("wasm"));
        put("snippets/a.js", b"js");
        put(".secret", b"no");
        let page = Page::open(Some(folder.path())).unwrap();
        let index = page.file("").unwrap();
        assert_eq!(index.plain().unwrap(), "<head><meta name=\"loka-serve\" content=\"1\"></head>");
        assert_eq!(
            (index.gzipped(), index.content_type),
            (None, "text/html; charset=utf-8"),
            "the packed one is unmarked"
        );
        let wasm = page.file("loka_bg.wasm").unwrap();
        assert_eq!((wasm.plain().unwrap(), wasm.content_type), (Bytes::from("wasm"), "application/wasm"));
        assert_eq!(wasm.gzipped().unwrap(), gzip("wasm"));
        assert_ne!(wasm.etag, index.etag);
        assert!(page.file("snippets/a.js").is_some());
        for name in ["loka_bg.wasm.gz", ".secret", "snippets", "../index.html", "/etc/passwd"] {
            assert!(page.file(name).is_none(), "{name}");
        }
    }

    #[test]
    fn a_folder_that_is_no_page_is_a_line() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Page::open(Some(folder.path())).unwrap_err().starts_with("no index.html in it: "));
        assert!(Page::open(Some(&folder.path().join("x"))).unwrap_err().starts_with("no such file or folder: "));
        for number in 0..=limits::PAGE_FILES {
            std::fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        assert!(Page::open(Some(folder.path())).unwrap_err().starts_with("too much"));
    }
}
