//! One kernel and one reason for every selected site: the form, and what it sends. One step of undo.

use egui::{Checkbox, ComboBox, Id, Modal, RichText, TextEdit, Ui};
use loka_core::model::{Gemm, KernelId};

use crate::{
    state::BulkForm,
    theme::{number, shorten},
    views::Scene,
};

/// The form, over everything, while it is open.
pub fn bulk_ui(ui: &mut Ui, scene: &mut Scene<'_>) {
    let Some(mut form) = scene.view.sites.bulk.take() else { return };
    let modal = Modal::new(Id::unique("override sites")).show(ui.ctx(), |ui| {
        ui.set_width(380.0);
        form_ui(ui, scene, &mut form)
    });
    match modal.inner {
        Some(true) => scene.send(form.command()),
        None if !modal.should_close() => scene.view.sites.bulk = Some(form),
        _ => {}
    }
}

/// `Some(true)`: to be done; `Some(false)`: to be left.
fn form_ui(ui: &mut Ui, scene: &Scene<'_>, form: &mut BulkForm) -> Option<bool> {
    let gemms = number::counted(form.num_gemms(), "GEMM");
    let title = match (&form.first, form.num_sites) {
        (Some(site), 1) => format!("Override {}", shorten(site.as_str(), 40)),
        (_, sites) => format!("Override {gemms} at {}", number::counted(sites, "site")),
    };
    ui.heading(title);
    ui.add_space(4.0);
    let mut kernels: Vec<&KernelId> = Vec::new();
    for column in &scene.derived.grid.columns {
        if !kernels.contains(&&column.kernel) {
            kernels.push(&column.kernel);
        }
    }
    ui.horizontal(|ui| {
        let label = ui.label("Kernel");
        let combo = ComboBox::from_id_salt("bulk kernel").selected_text(form.kernel.as_str()).width(240.0);
        let combo = combo.show_ui(ui, |ui| {
            for kernel in kernels {
                ui.selectable_value(&mut form.kernel, kernel.clone(), kernel.as_str());
            }
        });
        combo.response.labelled_by(label.id);
    });
    ui.horizontal(|ui| {
        ui.label("At");
        let there: Vec<Gemm> = Gemm::ALL.into_iter().filter(|gemm| form.has(*gemm)).collect();
        for gemm in there {
            let mut on = form.gemms.contains(&gemm);
            if ui.add(Checkbox::new(&mut on, gemm.as_str())).changed() && !form.gemms.remove(&gemm) {
                form.gemms.insert(gemm);
            }
        }
    });
    let field =
        TextEdit::singleline(&mut form.reason).hint_text("Reason, kept in the plan").desired_width(f32::INFINITY);
    let field = ui.add(field);
    field.widget_info(|| egui::WidgetInfo::labeled(egui::Role::TextInput, true, "Reason for all"));
    if std::mem::take(&mut form.fresh) {
        field.request_focus();
    }
    let entered = field.lost_focus() && ui.input(|input| input.key_pressed(egui::Key::Enter));
    ui.label(RichText::new("GEMMs that the kernel cannot run stay as they are.").small().color(scene.theme.weak));
    ui.add_space(8.0);
    let problem = form.problem();
    ui.horizontal(|ui| {
        let button = ui.add_enabled(problem.is_none(), egui::Button::new("Override all"));
        let done = button.on_disabled_hover_text(problem.unwrap_or_default()).clicked();
        let left = ui.button("Cancel").clicked();
        match (done || (entered && problem.is_none()), left) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        }
    })
    .inner
}
