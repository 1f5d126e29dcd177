//! Takes the module that rustc makes of the page and a folder, leaves there what a browser loads: the module as JavaScript can
//! call it, and the JavaScript that does. `loka_bindgen MODULE FOLDER`.

use anyhow::bail;
use wasm_bindgen_cli_support::Bindgen;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [module, folder] = arguments.as_slice() else { bail!("usage: loka_bindgen MODULE FOLDER") };
    // The JavaScript finds the module beside itself, as with the program.
    Bindgen::new().input_path(module).web(true)?.omit_default_module_path(false).typescript(false).generate(folder)
}
