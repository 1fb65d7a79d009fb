#pragma once
#include <string>

#include "reports/html/document.h"
#include "reports/model.h"

namespace reports {

/// report.html: the whole report as one page that loads nothing, runs nothing and needs no network.
/// The same bytes for the same results and drawings.
std::string render_report_html(const Model& model, const html::Drawings& drawings);

}  // namespace reports
