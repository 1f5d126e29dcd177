//! How the files of a crate hang together: takes its root file, reads every module with a parser, gives which file
//! imports which. An import is followed through re-exports to the file that defines what is imported, so that a folder's
//! `mod.rs` hides nothing. Code that only tests see is left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{
    Attribute, Item, Meta, Token, UseTree,
    punctuated::Punctuated,
    visit::{self, Visit},
};

/// A crate's files and types.
#[derive(Default)]
pub struct House {
    modules: BTreeMap<Names, Module>,
    /// Every type with its file: struct, enum, trait, union, alias.
    pub types: Vec<(String, String)>,
}

/// `["views", "heatmap"]`: without the crate.
type Names = Vec<String>;

#[derive(Default)]
struct Module {
    /// Below the crate's `src`, with slashes.
    file: String,
    items: BTreeSet<String>,
    /// What a `use` brings into the module, by the name that it has here.
    imports: BTreeMap<String, Names>,
    globs: Vec<Names>,
    /// Paths in signatures and bodies.
    paths: BTreeSet<Names>,
}

impl House {
    /// `src`: the folder that has `lib.rs`.
    pub fn read(src: &Path) -> Self {
        let mut house = Self::default();
        house.read_file(&src.join("lib.rs"), src, Vec::new(), src);
        house
    }

    /// `folder`: where the files of the module's own modules lie.
    fn read_file(&mut self, file: &Path, folder: &Path, names: Names, src: &Path) {
        let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let name = file.strip_prefix(src).unwrap_or(file).to_string_lossy().replace('\\', "/");
        self.read_items(&parsed.items, &name, folder, names, src);
    }

    fn read_items(&mut self, items: &[Item], file: &str, folder: &Path, names: Names, src: &Path) {
        let mut module = Module { file: file.to_owned(), ..Module::default() };
        for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
            if let Some((name, is_type)) = named(item) {
                if is_type {
                    self.types.push((name.clone(), file.to_owned()));
                }
                module.items.insert(name);
            }
            match item {
                Item::Use(item) => leaves(&item.tree, &mut Vec::new(), &mut module, &names),
                Item::Mod(item) => {
                    let child = item.ident.to_string();
                    let mut below = names.clone();
                    below.push(child.clone());
                    match &item.content {
                        Some((_, items)) => self.read_items(items, file, &folder.join(&child), below, src),
                        None => {
                            let beside = folder.join(format!("{child}.rs"));
                            let inside = folder.join(&child).join("mod.rs");
                            let path = if beside.exists() { beside } else { inside };
                            // A module of another platform may have another file.
                            if path.exists() {
                                self.read_file(&path, &folder.join(&child), below, src);
                            }
                        }
                    }
                }
                other => Paths { names: &names, found: &mut module.paths }.visit_item(other),
            }
        }
        self.modules.insert(names, module);
    }

    /// By file: the files whose items it names, itself left out.
    pub fn imports(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (names, module) in &self.modules {
            let paths = module.imports.values().chain(&module.globs).chain(&module.paths);
            for path in paths {
                let found = self.file_of(names, path, 0).filter(|file| *file != module.file);
                all.entry(&module.file).or_default().extend(found);
            }
        }
        all
    }

    /// The file that defines what a path means in a module. A path from the root begins with `crate`.
    fn file_of(&self, at: &[String], path: &[String], depth: usize) -> Option<&str> {
        // Modules may re-export each other.
        if depth > 16 {
            return None;
        }
        let (mut names, mut rest) = (at.to_vec(), path);
        if path.first().is_some_and(|name| name == "crate") {
            (names, rest) = (Vec::new(), &path[1..]);
        }
        loop {
            let module = self.modules.get(&names)?;
            let Some((first, after)) = rest.split_first() else { return Some(&module.file) };
            let mut below = names.clone();
            below.push(first.clone());
            if self.modules.contains_key(&below) {
                (names, rest) = (below, after);
            } else if module.items.contains(first) {
                return Some(&module.file);
            } else if let Some(import) = module.imports.get(first) {
                let whole: Names = import.iter().chain(after).cloned().collect();
                return (whole != path || names != at).then(|| self.file_of(&names, &whole, depth + 1)).flatten();
            } else {
                return module.globs.iter().find_map(|glob| {
                    let whole: Names = glob.iter().chain(rest).cloned().collect();
                    self.file_of(&names, &whole, depth + 1)
                });
            }
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[cfg(test)]` and `#[cfg(all(test, …))]`; `#[cfg(any(test, …))]` is for others too.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    let conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.filter_map(|attribute| attribute.parse_args::<Meta>().ok()).any(|condition| asks_for_test(&condition))
}

fn asks_for_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => {
            let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            parts.is_ok_and(|parts| parts.iter().any(asks_for_test))
        }
        _ => false,
    }
}

/// The item's name, and whether it is a type.
fn named(item: &Item) -> Option<(String, bool)> {
    let (name, is_type) = match item {
        Item::Const(item) => (&item.ident, false),
        Item::Fn(item) => (&item.sig.ident, false),
        Item::Static(item) => (&item.ident, false),
        Item::Enum(item) => (&item.ident, true),
        Item::Struct(item) => (&item.ident, true),
        Item::Trait(item) => (&item.ident, true),
        Item::Type(item) => (&item.ident, true),
        Item::Union(item) => (&item.ident, true),
        _ => return None,
    };
    Some((name.to_string(), is_type))
}

/// A path with `self` and `super` taken out, from the root where it had one of them.
fn absolute(path: &[String], names: &[String]) -> Names {
    let ups = path.iter().take_while(|name| *name == "super" || *name == "self").count();
    if ups == 0 {
        return path.to_vec();
    }
    let supers = path[..ups].iter().filter(|name| *name == "super").count();
    let kept = &names[..names.len().saturating_sub(supers)];
    ["crate".to_owned()].into_iter().chain(kept.iter().chain(&path[ups..]).cloned()).collect()
}

fn leaves(tree: &UseTree, before: &mut Names, module: &mut Module, names: &[String]) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            leaves(&path.tree, before, module, names);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, before, module, names)),
        UseTree::Glob(_) => module.globs.push(absolute(before, names)),
        UseTree::Name(name) if name.ident == "self" => {
            let last = before.last().cloned().unwrap_or_default();
            module.imports.insert(last, absolute(before, names));
        }
        UseTree::Name(name) => {
            let whole: Names = before.iter().cloned().chain([name.ident.to_string()]).collect();
            module.imports.insert(name.ident.to_string(), absolute(&whole, names));
        }
        UseTree::Rename(rename) => {
            let whole: Names = before.iter().cloned().chain([rename.ident.to_string()]).collect();
            module.imports.insert(rename.rename.to_string(), absolute(&whole, names));
        }
    }
}

struct Paths<'a> {
    names: &'a [String],
    found: &'a mut BTreeSet<Names>,
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let segments: Names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.found.insert(absolute(&segments, self.names));
        }
        visit::visit_path(self, path);
    }
}

/// Groups of nodes that reach each other, the largest first; single ones are none.
pub fn circles<'a>(graph: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<Vec<&'a str>> {
    let reached = |from: &'a str| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(node) = open.pop() {
            let next = graph.get(node).into_iter().flatten();
            open.extend(next.filter(|node| seen.insert(**node)));
        }
        seen
    };
    let reach: BTreeMap<&str, BTreeSet<&str>> = graph.keys().map(|node| (*node, reached(node))).collect();
    let (mut found, mut placed) = (Vec::new(), BTreeSet::new());
    for (node, reaches) in &reach {
        if placed.contains(node) {
            continue;
        }
        let together: Vec<&str> =
            reaches.iter().copied().filter(|other| reach.get(other).is_some_and(|back| back.contains(node))).collect();
        placed.extend(together.iter().copied());
        if together.len() > 1 {
            found.push(together);
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

/// Every Rust file below a folder.
pub fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}
