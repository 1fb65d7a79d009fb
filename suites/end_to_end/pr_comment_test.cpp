// Comments on pull requests: what ci/check_comment lets through and ci/post_comment posts, and the
// rights that the workflows have.
#include <gmock/gmock.h>

#include <filesystem>
#include <regex>
#include <sstream>

#include "base/testing/paths.h"
#include "suites/end_to_end/command.h"

namespace suites::end_to_end {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const fs::path kCi = fs::path(base::source_dir()) / "ci";

/// Foreign code runs where nothing can be written; where something can, no foreign code runs.
TEST(Workflows, NeverJoinForeignCodeAndRights) {
  const std::string gate = read_file(kCi / "github/pr_gate.yml"),
                    comment = read_file(kCi / "github/pr_comment.yml");
  EXPECT_THAT(gate, HasSubstr("\non:\n  pull_request:\npermissions:\n  contents: read\n"));
  for (const char* right :
       {"pull_request_target", "workflow_run", ": write", "secrets.", "github.token"})
    EXPECT_THAT(gate, Not(HasSubstr(right)));
  EXPECT_THAT(comment, HasSubstr("\non:\n  workflow_run:\n"));
  EXPECT_THAT(comment, HasSubstr("ref: ${{ github.event.repository.default_branch }}\n"));
  EXPECT_THAT(comment, Not(HasSubstr("download-artifact")));
  EXPECT_THAT(comment, Not(HasSubstr("secrets.")));
  int pinned = 0;
  for (const std::string& workflow : {gate, comment}) {
    EXPECT_THAT(workflow, HasSubstr("persist-credentials: false\n"));
    std::istringstream lines(workflow);
    for (std::string line; std::getline(lines, line);) {
      // What others name is text of the environment, never of a script.
      if (line.find("run: ") != std::string::npos) {
        EXPECT_THAT(line, Not(HasSubstr("${{")));
      }
      if (line.find("uses: ") == std::string::npos) continue;
      EXPECT_TRUE(std::regex_search(line, std::regex("uses: actions/[a-z-]+@[0-9a-f]{40}  # v")))
          << line;
      ++pinned;
    }
  }
  EXPECT_EQ(pinned, 4);
}

class CheckComment : public testing::Test {
 protected:
  static Outcome check_file(const fs::path& file) {
    return run({(kCi / "check_comment").string(), file.string()});
  }
  Outcome check(const std::string& text) const {
    const fs::path file = fresh_dir("comment.md");
    write_file(file, text);
    return check_file(file);
  }
  const std::string marker_ = "<!-- nsa-validate:pr_gate -->\n";
};

TEST_F(CheckComment, RefusesInvalidComment) {
  for (const std::string& bad :
       std::vector<std::string>{"", "hello\n", "<!-- nsa-validate:../x -->\n", marker_ + "\x1b[31m",
                                marker_ + "\xff", marker_ + std::string(70'000, 'a'),
                                marker_ + "\xe2\x80\xae"
                                          "evil"})
    EXPECT_EQ(check(bad).exit_code, 1) << bad.substr(0, 60);
  const fs::path link = fresh_dir("comment_link.md");
  fs::create_symlink("/etc/passwd", link);
  EXPECT_EQ(check_file(link).exit_code, 1);
  EXPECT_EQ(check(marker_ + std::string(65'000, 'a')).exit_code, 0);
}

TEST_F(CheckComment, PostedTextIsInert) {
  const Outcome done =
      check(marker_ +
            "### GO\n<details><summary>x</summary>\n<img src=x onerror=y> <script>z</script> "
            "<!-- nsa-validate:other --> @maintainer #12 GH-3 [a](https://evil.example) "
            "![b](http://evil.example) www.evil.example 1 < 2\n[c]: ftp://evil\n</details>\n");
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_THAT(done.output, StartsWith(marker_ + "> "));
  EXPECT_THAT(done.output, HasSubstr("<details><summary>x</summary>"));
  EXPECT_THAT(done.output, HasSubstr("1 < 2"));
  for (const char* live : {"<img", "<script", "<!-- nsa-validate:other", "@maintainer", "#12",
                           "GH-3", "](", "://", "www.e", "]:"})
    EXPECT_THAT(done.output, Not(HasSubstr(live))) << live;
}

TEST_F(CheckComment, CommentsOfRealRunsPass) {
  int seen = 0;
  for (const auto& sample : fs::directory_iterator(kCi.parent_path() / "reports/samples")) {
    const fs::path comment = sample.path() / "comment.md";
    if (!fs::exists(comment)) continue;
    ++seen;
    const Outcome done = check_file(comment);
    EXPECT_EQ(done.exit_code, 0) << sample.path() << done.output;
  }
  EXPECT_GE(seen, 3);
}

/// A `gh` that answers from files and notes what it was asked to write.
class PostComment : public testing::Test {
 protected:
  PostComment() : dir_(fresh_dir("post_comment")) {
    fs::create_directories(dir_);
    write_file(dir_ / "gh", R"(#!/bin/sh
dir=$(dirname "$0")
case "$*" in
  *artifacts/7/zip*) cat "$dir/artifact.zip" ;;
  *runs/5/artifacts*) cat "$dir/artifacts" ;;
  *-X\ GET*pulls*) cat "$dir/pulls" ;;
  *--paginate*) cat "$dir/comments" ;;
  *) echo "$*" >>"$dir/asked"; for a; do case $a in body=@*) cat "${a#body=@}" >>"$dir/posted" ;; esac; done ;;
esac
)");
    fs::permissions(dir_ / "gh", fs::perms::owner_all);
    write_line("artifacts", "7 900");
    write_line("pulls", "31");
    write_line("comments", "");
    pack("<!-- nsa-validate:pr_gate -->\n### GO @you\n");
  }
  void write_line(const std::string& name, const std::string& text) const {
    write_file(dir_ / name, text + "\n");
  }
  void pack(const std::string& comment) const {
    write_file(dir_ / "comment.md", comment);
    run({"/usr/bin/env", "python3", "-c",
         "import sys, zipfile\nzipfile.ZipFile(sys.argv[1], 'w', "
         "zipfile.ZIP_DEFLATED).write(sys.argv[2], 'comment.md')",
         (dir_ / "artifact.zip").string(), (dir_ / "comment.md").string()});
  }
  Outcome post() const {
    return run({(kCi / "post_comment").string()},
               {"PATH=" + dir_.string() + ":" + std::string(getenv("PATH")), "REPO=o/r", "RUN=5",
                "HEAD=abc", "OWNER=someone", "BRANCH=$(touch x)", "GH_TOKEN=none"});
  }
  std::string asked() const { return read_file(dir_ / "asked"); }
  const fs::path dir_;
};

TEST_F(PostComment, PostsOnceAndThenUpdates) {
  EXPECT_EQ(post().exit_code, 0);
  EXPECT_THAT(asked(), HasSubstr("-X POST repos/o/r/issues/31/comments"));
  EXPECT_THAT(read_file(dir_ / "posted"), StartsWith("<!-- nsa-validate:pr_gate -->\n"));
  EXPECT_THAT(read_file(dir_ / "posted"), Not(HasSubstr("@you")));
  write_line("comments", "99");
  EXPECT_EQ(post().exit_code, 0);
  EXPECT_THAT(asked(), HasSubstr("-X PATCH repos/o/r/issues/comments/99"));
}

TEST_F(PostComment, PostsNoCommentThatIsTooLargeForeignOrStale) {
  write_line("artifacts", "7 99999999");
  EXPECT_EQ(post().exit_code, 1);
  write_line("artifacts", "7 900");
  pack("hello");
  EXPECT_EQ(post().exit_code, 1);
  std::string large = "<!-- nsa-validate:pr_gate -->\n";
  large.resize(30'000'000, 'a');
  pack(large);
  EXPECT_EQ(post().exit_code, 1);
  pack("<!-- nsa-validate:pr_gate -->\nfine");
  write_line("pulls", "");
  EXPECT_EQ(post().exit_code, 0);
  write_line("artifacts", "null null");
  EXPECT_EQ(post().exit_code, 0);
  EXPECT_EQ(asked(), "");
}

}  // namespace
}  // namespace suites::end_to_end
