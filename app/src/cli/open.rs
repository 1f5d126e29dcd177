//! `loka open`: the workbench, and what it does by itself once it is open: a link, actions, a picture. Where there is no
//! display it is served to browsers on this machine.

use std::path::PathBuf;

use super::output::Outcome;

#[derive(clap::Args, Debug, Default)]
pub struct OpenArgs {
    /// A trace, or the results of an earlier probe.
    files: Vec<PathBuf>,
    /// Where there is no display, and a page is served: one that scripts/build_web.sh made, in place of the one that is built in.
    #[cfg(feature = "serve")]
    #[arg(long, value_name = "FOLDER")]
    page: Option<PathBuf>,
    #[cfg(feature = "gui")]
    #[command(flatten)]
    script: scripted::ScriptArgs,
}

impl OpenArgs {
    pub fn of(files: Vec<PathBuf>) -> Self {
        Self { files, ..Self::default() }
    }
}

pub fn run(args: OpenArgs, json: bool) -> anyhow::Result<Outcome> {
    for file in &args.files {
        // Said before a window opens: a wrong name on the command line is bad use.
        if !file.exists() {
            anyhow::bail!("no such file or folder: {}", file.display());
        }
    }
    in_window(args, json)
}

#[cfg(feature = "gui")]
fn in_window(mut args: OpenArgs, json: bool) -> anyhow::Result<Outcome> {
    let asks_for_a_window = args.script.is_given();
    let setup = std::mem::take(&mut args.script).setup()?;
    if crate::desktop::has_display() {
        crate::desktop::open(args.files, setup)?;
        return Ok(Outcome::Done);
    }
    let why = "there is no display here (DISPLAY and WAYLAND_DISPLAY are not set)";
    anyhow::ensure!(
        !asks_for_a_window,
        "{why}, and what a window is to do was asked for: loka serve shows the workbench in a browser"
    );
    in_browser(args, why, json)
}

#[cfg(not(feature = "gui"))]
fn in_window(args: OpenArgs, json: bool) -> anyhow::Result<Outcome> {
    in_browser(args, "this build has no window (it was made without the feature `gui`)", json)
}

/// `why`: there is no window.
#[cfg(feature = "serve")]
fn in_browser(args: OpenArgs, why: &str, json: bool) -> anyhow::Result<Outcome> {
    use anyhow::Context as _;

    let served = match args.files.as_slice() {
        [] => PathBuf::from("."),
        [file] => trace_of(file).with_context(|| why.to_owned())?,
        _ => anyhow::bail!("{why}, and a page begins with one trace: loka serve TRACE, and open the others there"),
    };
    super::serve::in_place_of_a_window(&served, args.page, why, json).with_context(|| why.to_owned())
}

#[cfg(not(feature = "serve"))]
fn in_browser(_: OpenArgs, why: &str, _: bool) -> anyhow::Result<Outcome> {
    anyhow::bail!("{why}, and this build serves no page (it was made without the feature `serve`)")
}

/// What a page of that file is of: a session that is served is a trace's, and takes the results beside it.
#[cfg(feature = "serve")]
fn trace_of(file: &std::path::Path) -> anyhow::Result<PathBuf> {
    use loka_core::session::FileKind;

    let name = file.to_string_lossy();
    let kind = if file.is_dir() { None } else { FileKind::of_name(&name) };
    if !matches!(kind, Some(FileKind::Results | FileKind::Plan)) {
        return Ok(file.to_owned());
    }
    let trace = PathBuf::from(crate::beside::beside(&name, "trace.safetensors"));
    anyhow::ensure!(
        kind == Some(FileKind::Results) && trace.exists(),
        "what is served is a trace: loka serve FOLDER serves those of a folder, and there this opens: {}",
        file.display()
    );
    Ok(trace)
}

#[cfg(feature = "gui")]
mod scripted {
    use std::path::PathBuf;

    use anyhow::Context as _;

    use crate::{
        commands::Action,
        desktop::WindowSetup,
        files,
        layout::Layout,
        nearest::did_you_mean,
        picture,
        theme::Ground,
        window::{
            script::{KeepPicture, Script},
            steps::{self, Step},
        },
    };

    /// Sides of a window in points: no screen has more, and less shows nothing.
    const SIDES: std::ops::RangeInclusive<f32> = 300.0..=8_192.0;

    #[derive(clap::Args, Debug, Default)]
    pub struct ScriptArgs {
        /// Select and show what a link says: one copied in a page, or what is behind its `#` (`view=plan&site=top.mlp.0`).
        #[arg(long, value_name = "LINK")]
        at: Option<String>,
        /// Carry out an action by its id (`loka actions`), once all before it is there. Repeat it for more.
        #[arg(long = "do", value_name = "ACTION")]
        actions: Vec<String>,
        /// Do what these lines say, before any `--do`: what "Copy the steps" put on the clipboard, in a file, of this trace or another.
        #[arg(long, value_name = "STEPS.txt")]
        steps: Option<PathBuf>,
        /// Write the window to this PNG once all of that is done and drawn, and close. Settings and
        /// the trace's journal are neither read nor written.
        #[arg(long, value_name = "OUT.png")]
        screenshot: Option<PathBuf>,
        /// Width and height of the window in points.
        #[arg(long, value_name = "WIDTHxHEIGHT")]
        size: Option<String>,
        /// Dark or light, in place of the remembered one.
        #[arg(long, value_name = "THEME")]
        theme: Option<ThemeArg>,
        /// How the views stand: what "Copy the layout" put on the clipboard, in a file.
        #[arg(long, value_name = "LAYOUT.json")]
        layout: Option<PathBuf>,
        /// Tell on stdout, a line of JSON for each line `look` on stdin, what is on screen: for tests of the window.
        #[arg(long, hide = true)]
        drive: bool,
    }

    #[derive(clap::ValueEnum, Clone, Copy, Debug)]
    enum ThemeArg {
        Dark,
        Light,
    }

    impl ScriptArgs {
        /// Something of it was asked for.
        pub fn is_given(&self) -> bool {
            let Self { at, actions, steps, screenshot, size, theme, layout, drive } = self;
            let files = [steps, screenshot, layout].into_iter().any(Option::is_some);
            at.is_some() || !actions.is_empty() || files || size.is_some() || theme.is_some() || *drive
        }

        /// What is wrong with it is said before a window opens.
        pub fn setup(self) -> anyhow::Result<WindowSetup> {
            let mut script: Vec<Step> = Vec::new();
            script.extend(self.at.as_deref().map(steps::at).transpose().map_err(anyhow::Error::msg)?.map(Step::At));
            if let Some(path) = self.steps {
                let read = steps::parse(&files::read_text(&path)?, meant);
                script.extend(read.map_err(|problem| anyhow::anyhow!("{}: {problem}", path.display()))?);
            }
            for id in &self.actions {
                script.push(Step::Act(steps::action(id, meant).map_err(anyhow::Error::msg)?));
            }
            let layout =
                self.layout.map(|path| Layout::from_json(&path, &files::read_text(&path)?).map_err(anyhow::Error::msg));
            let picture = self.screenshot.map(keep_at).transpose()?;
            Ok(WindowSetup {
                size: self.size.as_deref().map(size_of).transpose()?,
                ground: self.theme.map(|theme| match theme {
                    ThemeArg::Dark => Ground::Dark,
                    ThemeArg::Light => Ground::Light,
                }),
                layout: layout.transpose()?,
                script: Script::new(script, picture),
                driven: self.drive,
            })
        }
    }

    fn meant(id: &str) -> String {
        let known: Vec<String> = Action::all().into_iter().map(Action::id).collect();
        did_you_mean(id, known.iter().map(String::as_str))
    }

    fn size_of(text: &str) -> anyhow::Result<[f32; 2]> {
        let sides = text.split_once('x').and_then(|(width, height)| Some([width.parse().ok()?, height.parse().ok()?]));
        sides.filter(|sides: &[f32; 2]| sides.iter().all(|side| SIDES.contains(side))).with_context(|| {
            format!("'{text}' is no size of a window: 1280x800, with sides of {} to {}", SIDES.start(), SIDES.end())
        })
    }

    /// A folder that takes no file is told before a window opens.
    fn keep_at(path: PathBuf) -> anyhow::Result<KeepPicture> {
        if path.extension().is_none_or(|ending| !ending.eq_ignore_ascii_case("png")) {
            anyhow::bail!("a screenshot is a PNG, and its name ends so: {}", path.display());
        }
        files::check_writable(&path)?;
        Ok(Box::new(move |image| {
            files::write_atomically(&path, &picture::encode(image)?).map_err(|error| error.to_string())
        }))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn problem(args: ScriptArgs) -> String {
            args.setup().err().map(|error| format!("{error:#}")).unwrap_or_default()
        }

        #[test]
        fn what_cannot_be_is_said_before_a_window_opens() {
            let action = ScriptArgs { actions: vec!["view.heatmpa".to_owned()], ..ScriptArgs::default() };
            assert!(problem(action).starts_with("no action has the id 'view.heatmpa'; did you mean 'view.heatmap'"));
            let link = ScriptArgs { at: Some("https://here/#kitchen=1".to_owned()), ..ScriptArgs::default() };
            assert!(problem(link).contains("says nothing that can be shown"));
            for size in ["1280", "0x0", "1e9x800", "NaNx800", "-1x800"] {
                let args = ScriptArgs { size: Some(size.to_owned()), ..ScriptArgs::default() };
                assert!(problem(args).contains("is no size of a window"), "{size}");
            }
            let picture = ScriptArgs { screenshot: Some("a.jpg".into()), ..ScriptArgs::default() };
            assert_eq!(problem(picture), "a screenshot is a PNG, and its name ends so: a.jpg");
            let nowhere = ScriptArgs { screenshot: Some("/no/such/a.png".into()), ..ScriptArgs::default() };
            assert_eq!(problem(nowhere), "no such folder: /no/such/a.png");
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("layout.json");
            std::fs::write(&path, "{\"tree\": 1}").unwrap();
            let layout = ScriptArgs { layout: Some(path.clone()), ..ScriptArgs::default() };
            assert!(problem(layout).starts_with(&format!("{}: not a layout", path.display())));
            let steps = ScriptArgs { steps: Some(path.clone()), ..ScriptArgs::default() };
            assert!(problem(steps).starts_with(&format!("{}: line 1: no command", path.display())));
        }
    }
}
