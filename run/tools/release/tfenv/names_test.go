package tfenv_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The forms that the provider accepts, from google/verify/validation.go of
// hashicorp/terraform-provider-google: CreatedServiceAccountNameRegex,
// ServiceDefaultAccountNameRegex, ServiceAccountLinkRegex, ProjectRegex and
// ValidateRFC1035Name(6, 30). A mocked provider has the types of the schema and none of
// these, so that a test which the mock accepts fails with the provider itself.
const (
	projectForm = `(?:(?:[-a-z0-9]{1,63}\.)*(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?):)?(?:[0-9]{1,19}|(?:[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?))`
	accountForm = `[a-z](?:[-a-z0-9]{4,28}[a-z0-9])`
	emailForm   = `(?:` + accountForm + `@[-a-z0-9.]{1,63}\.iam\.gserviceaccount\.com|` + projectForm + `@[a-z]+.gserviceaccount.com)`
	linkForm    = `projects/(?:-|` + projectForm + `)/serviceAccounts/` + emailForm
)

// providerForms are a name's place in HCL, and the form that the provider wants there.
// The first group of a place is the name.
var providerForms = []struct{ place, form *regexp.Regexp }{
	{regexp.MustCompile(`"([^"]*/serviceAccounts/[^"]*)"`), regexp.MustCompile(`^` + linkForm + `$`)},
	{regexp.MustCompile(`"(?:serviceAccount:)?([^"/:]*@[^"/:]*gserviceaccount[^"/:]*)"`), regexp.MustCompile(`^` + emailForm + `$`)},
	{regexp.MustCompile(`\baccount_id += +"([^"]*)"`), regexp.MustCompile(`^` + accountForm + `$`)},
	{regexp.MustCompile(`\bproject(?:_id)? += +"([^"]*)"`), regexp.MustCompile(`^` + projectForm + `$`)},
}

// refusedNames returns the names in HCL that the provider refuses, and how many it has
// seen. A value that is known later stands for a good one.
func refusedNames(hcl string) (refused []string, seen int) {
	hcl = regexp.MustCompile(`(?m)^ *(?:description +=|#).*$`).ReplaceAllString(hcl, "")
	hcl = regexp.MustCompile(`/\$\{[^}"]*\}"`).ReplaceAllString(hcl, `/known-later@later.iam.gserviceaccount.com"`)
	hcl = regexp.MustCompile(`\$\{[^}"]*\}`).ReplaceAllString(hcl, "x") // known later
	for _, p := range providerForms {
		for _, name := range p.place.FindAllStringSubmatch(hcl, -1) {
			seen++
			if !p.form.MatchString(name[1]) {
				refused = append(refused, name[1])
			}
		}
	}
	return refused, seen
}

func TestProviderAcceptsNames(t *testing.T) {
	t.Parallel()
	for hcl, accepted := range map[string]bool{
		`name = "projects/coldaisle-test/serviceAccounts/gateways"`:                                             false,
		`name = "projects/coldaisle-test/serviceAccounts/gateways@coldaisle-test.iam.gserviceaccount.com"`:      true,
		`name = "projects/-/serviceAccounts/gateways@coldaisle-test.iam.gserviceaccount.com"`:                   true,
		`name = "projects/coldaisle-test/serviceAccounts/push@coldaisle-test.iam.gserviceaccount.com"`:          false, // 4 characters
		`email = "api@coldaisle-test.iam.gserviceaccount.com"`:                                                  false,
		`member = "serviceAccount:coldaisle-api@coldaisle-test.iam.gserviceaccount.com"`:                        true,
		`member = "serviceAccount:service-${data.google_project.this.number}@gcp-sa-x.iam.gserviceaccount.com"`: true,
		`member = "serviceAccount:123456789012@cloudbuild.gserviceaccount.com"`:                                 true,
		`account_id   = "api"`:                   false,
		`account_id   = "coldaisle-${var.name}"`: true,
		`account_id   = "coldaisle_api"`:         false,
		`project_id = "Not A Project"`:           false,
		`project_id = "coldaisle-test"`:          true,
		`service_account_id = "projects/p/x"`:    true,
	} {
		if refused, _ := refusedNames(hcl); (len(refused) == 0) != accepted {
			t.Errorf("%s: refused %q", hcl, refused)
		}
	}
	all := 0
	err := filepath.WalkDir("../../../../terraform", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".tf" && filepath.Ext(path) != ".hcl" ||
			strings.HasSuffix(path, "/validation.tftest.hcl") { // which gives wrong ones on purpose
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		refused, seen := refusedNames(string(content))
		all += seen
		for _, name := range refused {
			t.Errorf("%s: the provider refuses %q", path, name)
		}
		return nil
	})
	if err != nil || all < 50 {
		t.Errorf("%d names are found: %v", all, err)
	}
}
