#pragma once
#include "harness/stats/estimators/estimators.h"

/// The functions behind the table of estimators.cpp. They throw stats::NoData, or
/// std::invalid_argument for impossible samples; estimate() turns both into a null with its reason.
namespace harness::stats {

// line_estimators.cpp: exact figures from metric and check lines
void estimate_value(const MetricSpec&, const EvidenceView&, Metric&);
void estimate_min(const MetricSpec&, const EvidenceView&, Metric&);
void estimate_max(const MetricSpec&, const EvidenceView&, Metric&);
void estimate_mean(const MetricSpec&, const EvidenceView&, Metric&);
void estimate_all(const MetricSpec&, const EvidenceView&, Metric&);
void estimate_checks_run(const MetricSpec&, const EvidenceView&, Metric&);
void estimate_checks_failed(const MetricSpec&, const EvidenceView&, Metric&);

// sample_estimators.cpp: measured figures with intervals
void estimate_median(const MetricSpec&, const EvidenceView&, Metric&);
void estimate_rate(const MetricSpec&, const EvidenceView&, Metric&);
void estimate_eta(const MetricSpec&, const EvidenceView&, Metric&);

// paired_estimator.cpp
void estimate_paired_overhead(const MetricSpec& spec, const EvidenceView& view, Metric& metric);
void estimate_paired_ratio(const MetricSpec&, const EvidenceView&, Metric&);

}  // namespace harness::stats
